"""How the rows of a batch norm are cut."""

import pytest

from tests.helpers.processes import needs_triton

pytestmark = needs_triton


@pytest.mark.parametrize("rows", [1, 63, 64, 65, 5_000, 195_000])
@pytest.mark.parametrize("channels", [1, 16, 48, 52, 64, 96, 200])
def test_programs_are_as_many_as_have_work_and_no_more_than_allowed(
    rows: int, channels: int
) -> None:
    from graphmamba.ops.batch_norm.triton import Tile, cut

    tile = Tile(rows=64, channels=32, programs=100)
    grid = cut(rows, channels, tile, most=20)
    programs, blocks = grid.programs
    height, width = grid.constants["T"], grid.constants["C"]
    tiles = -(-rows // height)
    assert height * width == tile.rows * tile.channels
    assert blocks * width >= channels > (blocks - 1) * width
    assert programs <= min(tiles, 20)
    assert programs * blocks <= 100
    # The same number of rounds as with all programs that are allowed.
    assert -(-tiles // programs) == -(-tiles // min(tiles, 20, 100 // blocks))


@pytest.mark.parametrize(
    ("channels", "width"), [(96, 32), (48, 16), (16, 16), (3, 16), (52, 32), (88, 32)]
)
def test_blocks_of_channels_leave_little_empty(channels: int, width: int) -> None:
    from graphmamba.ops.batch_norm.triton import Tile, cut

    assert cut(1_000, channels, Tile(channels=32)).constants["C"] == width
