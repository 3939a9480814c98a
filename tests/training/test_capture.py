"""Work captured as CUDA graphs, and what happens where that fails."""

import pytest
import torch

from graphmamba.training.capture import CapturedCall, CaptureError

pytestmark = pytest.mark.gpu


def test_every_call_counts_whether_it_is_captured_or_not() -> None:
    total = torch.zeros((), device="cuda")
    call = CapturedCall(lambda: total.add_(1), torch.cuda.Stream())
    for expected in range(1, 6):
        call()
        assert total.item() == expected
    assert not call.has_failed


def test_what_cannot_be_captured_runs_on_after_one_warning() -> None:
    total = torch.zeros((), device="cuda")

    def work() -> None:
        total.add_(torch.rand((), device="cuda").item() * 0 + 1)

    call = CapturedCall(work, torch.cuda.Stream())
    call()
    with pytest.warns(UserWarning, match="could not be captured as a CUDA graph"):
        call()
    call()
    assert total.item() == 3
    # generators, memory and further captures are as before
    torch.manual_seed(0)
    first = torch.rand(3, device="cuda")
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    test_every_call_counts_whether_it_is_captured_or_not()


def test_a_capture_that_was_asked_for_stops_the_run_where_it_fails() -> None:
    total = torch.zeros((), device="cuda")
    call = CapturedCall(lambda: total.fill_(total.item()), torch.cuda.Stream(), is_required=True)
    call()
    with pytest.raises(CaptureError, match="the step could not be captured"):
        call()
