"""Kernels are collected and compiled without a GPU to launch them on."""

from tests.helpers.processes import needs_triton, run_apart

CODE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from graphmamba.ops.precompile import collected_kernels, compile_kernels
from graphmamba.training.update_kernels import squares_kernel

class Launcher:  # of a GPU that is not there
    launched = 0
    def __init__(self, *_): pass
    def __call__(self, *_, **__): Launcher.launched += 1

class Utils:
    def load_binary(self, *_): return None, None, 1, 0, 1024
    def get_device_properties(self, _): return {"max_shared_mem": 1 << 18, "warpSize": 32}

class Driver:
    launcher_cls, utils = Launcher, Utils()
    def get_current_device(self): return 0
    def get_current_stream(self, _): return 0
    def get_current_target(self): return GPUTarget("cuda", 90, 32)

driver.set_active(Driver())
torch.cuda.current_device, torch.cuda.set_device = lambda: 0, lambda _: None
flat, seen = torch.randn(2049), []

def work():
    squares = torch.empty(2)
    seen.append(squares.tolist())
    squares_kernel[(2,)](flat, squares, 2048, BLOCK=1024, num_warps=4)

with collected_kernels() as kernels:
    work()
    work()
assert [name for name, _ in kernels] == ["squares_kernel"], kernels
done = []
compile_kernels(kernels, threads=2, on_done=lambda *told: done.append(told))
assert done == [(1, 1)]
with collected_kernels() as others:  # what is compiled is neither collected nor launched
    work()
assert not others and not Launcher.launched
assert seen == [[0.0, 0.0]] * 3, seen
work()
assert Launcher.launched == 1
"""


@needs_triton
def test_kernels_are_compiled_without_being_launched_and_launched_afterwards() -> None:
    run_apart(CODE, TRITON_INTERPRET="0")
