import pytest

from graphmamba.ops.selective_scan.triton import WAVE, cut, states_shape


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("steps", [1_000_000, 2_345_678])
def test_programs_of_long_inputs_fill_their_waves(steps: int, back: bool) -> None:
    plan = cut(steps, 96, 16, back=back)
    programs = plan.chunks(steps)
    assert programs / (-(-programs // WAVE) * WAVE) > 0.95
    assert plan.chunk % plan.interval == 0


@pytest.mark.parametrize("steps", [1, 40, 20_926, 323_314, 1_000_000])
@pytest.mark.parametrize(("inner", "state"), [(1, 1), (96, 16), (200, 64)])
@pytest.mark.parametrize("back", [False, True])
def test_cuts_are_whole(steps: int, inner: int, state: int, back: bool) -> None:
    plan = cut(steps, inner, state, back=back)
    assert plan.chunk % 16 == 0
    assert plan.interval % plan.group == 0
    assert plan.chunks(steps) * plan.chunk >= steps
    assert plan.width >= inner
    # a state for each interval, A, and the bits of the starts
    assert states_shape(steps, inner, state)[0] > -(-steps // plan.interval) + 1
