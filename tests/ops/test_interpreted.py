"""All Triton kernels, interpreted on the CPU: in a process of their own, told so at its start."""

import pytest

from tests.helpers.processes import only_interpreted, run_apart

CHECKED = (
    ("ops.test_selective_scan",),
    ("ops.test_graph_mamba_layer",),
    (
        *("ops.test_causal_conv1d", "ops.test_gated_sum", "ops.test_edge_attention"),
        *("ops.test_segments", "ops.test_batch_norm", "ops.test_random", "ops.test_triton_launch"),
        *("ordering.test_triton", "training.test_update"),
    ),
)


@only_interpreted
@pytest.mark.parametrize("names", CHECKED, ids=", ".join)
def test_interpreted_kernels_are_right(names: tuple[str, ...]) -> None:
    run_apart(
        "from importlib import import_module\n"
        f"for name in {names}:\n"
        "    import_module(f'tests.{name}').check_interpreted()",
        TRITON_INTERPRET="1",
    )
