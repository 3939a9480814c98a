import torch

from graphmamba.bench import padded
from graphmamba.bench.shapes import BatchShape, scan_inputs
from graphmamba.scan.selective_scan import reference


def test_padding_changes_no_number() -> None:
    shape = BatchShape("small", sequences=5, tokens=60, longest=30, inner=6, state=4)
    inputs = scan_inputs(shape, device=torch.device("cpu"), dtype=torch.float64)
    found = []
    for operation in (reference.selective_scan, padded.selective_scan):
        out = operation(**inputs.leaves, cu_seqlens=inputs.cu_seqlens)
        grads = torch.autograd.grad(out, list(inputs.leaves.values()), inputs.out_grad)
        found.append([out, *grads])
    torch.testing.assert_close(*found)
