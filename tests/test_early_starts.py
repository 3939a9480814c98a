import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.helpers.processes import needs_triton

ROOT = Path(__file__).parents[1] / "src" / "graphmamba"
WAITS = {"await_previous", "take_turn", "follow"}
AHEAD = {
    "batch_norm_apply_kernel", "batch_norm_bwd_apply_kernel",
    "pair_apply_kernel", "pair_bwd_apply_kernel",
}  # fmt: skip
"""Second kernels of norms, which load before they wait for the first."""
LOADERS = {"load_tile", "load_keys", "real_rows", "load_channels"}
JOINED = {"load_pair", "load_norm", "load_given"}
"""What they load with: past the nearest cache; and what only calls these."""


def called(node: ast.AST) -> set[str]:
    """Names of all functions and methods called in a node."""
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return {each.attr if isinstance(each, ast.Attribute) else ast.unparse(each) for each in calls}


def device_functions(folder: Path = ROOT) -> Iterator[ast.FunctionDef]:
    for file in sorted(folder.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and any(
                ast.unparse(each).startswith("triton.jit") for each in node.decorator_list
            ):
                yield node


def is_load(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load"


def early_kernels() -> list[ast.FunctionDef]:
    return [
        each
        for each in device_functions()
        if each.name.endswith("_kernel") and "PDL" in {arg.arg for arg in each.args.args}
    ]


def statements_before_waiting(kernel: ast.FunctionDef) -> list[ast.stmt]:
    """What a kernel does before it waits, in all its programs; all of it if it never does."""
    body = kernel.body[1:] if ast.get_docstring(kernel) else kernel.body
    waits = [
        isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Call)
        and ast.unparse(each.value.func) in WAITS
        and ast.unparse(each.value.args[0]) == "PDL"
        for each in body
    ]
    return body[: waits.index(True)] if True in waits else body


def test_early_kernels_wait_before_anything_else() -> None:
    kernels = early_kernels()
    assert len(kernels) > 50
    early = {each.name for each in kernels if statements_before_waiting(each)}
    assert early == AHEAD
    calls = {each.name: called(each) for each in device_functions() if each.name in WAITS}
    assert calls.keys() == WAITS
    assert all(calls[name] & {"await_previous", "gdc_wait"} for name in WAITS)


def test_what_norms_load_before_they_wait_passes_by_the_nearest_cache() -> None:
    loads = {
        each.name: [call for call in ast.walk(each) if is_load(call)]
        for each in device_functions(ROOT / "encode" / "batch_norm")
    }
    assert not any(loads[name] for name in JOINED)
    for name in LOADERS:
        assert loads[name], name
        assert all("cache_modifier='.cg'" in ast.unparse(each) for each in loads[name]), name


def test_nothing_else_is_called_before_a_norm_waits() -> None:
    known = LOADERS | JOINED | {"arange", "program_id", "cdiv", "from_end"}
    for kernel in early_kernels():
        for statement in statements_before_waiting(kernel):
            assert called(statement) <= known, ast.unparse(statement)


@needs_triton
def test_kernels_start_early_where_the_device_can(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphmamba import early_starts

    assert early_starts.early(torch.device("cpu")) == {"PDL": False}
    monkeypatch.setattr(early_starts, "_capability", lambda _: (8, 6))
    assert early_starts.early(torch.device("cuda")) == {"PDL": False}
    monkeypatch.setattr(early_starts, "_capability", lambda _: (9, 0))
    assert early_starts.early(torch.device("cuda")) == {"PDL": True, "launch_pdl": True}
