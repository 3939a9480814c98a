"""Compiles Triton kernels in parallel before the first step instead of one by one at first use."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphmamba.ops.registration import NAMESPACE

Kernels = dict[tuple[str, str], Callable[[], object]]  # (kernel, variant) -> compile function
EMPTY = {
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.empty_like.default,
    torch.ops.aten.empty_strided.default,
    torch.ops.aten.new_empty.default,
    torch.ops.aten.new_empty_strided.default,
}


class _ZeroedMemory(TorchDispatchMode):
    """Fills new tensors with zeros, which are valid indices, since no kernel writes them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func in EMPTY:
            return output.zero_()
        if func.namespace == NAMESPACE:
            for each in output if isinstance(output, tuple) else (output,):
                each.zero_()
        return output


@contextmanager
def collected_kernels() -> Iterator[Kernels]:
    """Collect the Triton kernels that the code inside would launch; none is compiled or launched.

    All other operations run, on tensors of zeros, and may change tensors in place.
    """
    from triton import JITFunction, knobs

    found: Kernels = {}
    run = JITFunction.run

    def collect(*, fn: Any, compile: dict[str, Any], **_: Any) -> bool:  # noqa: A002 - Triton's
        kernel, variant = fn.jit_function, compile["specialization_data"]

        def build() -> object:
            # `run` loads the compiled kernel and builds its launcher
            return kernel.preload(variant).run

        found.setdefault((fn.name, str(compile["key"])), build)
        return True  # do not compile it

    def look_up(self: Any, *arguments: Any, warmup: bool, **options: Any) -> Any:  # noqa: ARG001
        return run(self, *arguments, warmup=True, **options)

    before = knobs.runtime.jit_cache_hook
    knobs.runtime.jit_cache_hook, JITFunction.run = collect, look_up
    try:
        with _ZeroedMemory():  # type: ignore[no-untyped-call]
            yield found
    finally:
        knobs.runtime.jit_cache_hook, JITFunction.run = before, run


def compile_kernels(
    kernels: Kernels, threads: int, on_done: Callable[[int, int], None] | None = None
) -> None:
    """Compile kernels on several threads; Triton releases the GIL for most of the work.

    Args:
        kernels: Result of `collected_kernels`.
        threads: Number of threads.
        on_done: Called with the number of compiled kernels, and of all kernels.
    """
    device = torch.cuda.current_device()

    def compile_one(build: Callable[[], object]) -> None:
        torch.cuda.set_device(device)
        build()

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(compile_one, build) for build in kernels.values()]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            if on_done:
                on_done(done, len(futures))
