"""How the fused scan divides the packed axis and the channels among the programs of a GPU."""

from dataclasses import dataclass

BLOCK_CHANNELS = 32
"""Channels of one program: one for each thread of a warp."""
TARGET_PROGRAMS = 2400
"""Warps that keep a large GPU busy; the packed axis is cut until there are about so many."""
LONGEST_CHUNK = 512
"""Steps of a chunk beyond which too few programs would be left."""
EVEN_CHUNKS = range(320, 481, 32)
"""Steps of a chunk instead of the longest, so that programs come in whole waves."""
EVEN_CHUNKS_BACK = range(320, 641, 32)
"""The same on the way back, where a wave of few long programs is as good as two of short ones."""
WAVE = 132 * 12
"""Programs of the last backward kernel that an H200 has room for at a time."""
LONG_CHUNK, SMALL_LINKS = 128, 64 << 20
"""Steps beyond which chunks grow only to save memory: when what they pass on takes more bytes."""
SMALL_STATES = 24 << 20
"""Up to so many bytes, states are kept as densely as the backward pass wants them."""
SPARSE_INTERVAL = 16
"""Steps from one kept state to the next where there are more."""


@dataclass(frozen=True)
class Cut:
    """One way to divide the work."""

    chunk: int
    """Steps of one program: a power of two up to 32, a multiple of 32 beyond."""
    group: int
    """Steps whose states the backward pass holds in registers."""
    interval: int
    """Steps from one kept state to the next."""
    states: int
    """States of a tile, a power of two."""
    block: int
    """Channels of a tile."""
    blocks: int
    """Tiles beside one another."""

    @property
    def width(self) -> int:
        """Channels, filled up to whole tiles."""
        return self.block * self.blocks

    def chunks(self, steps: int) -> int:
        """Return how many programs share the packed axis."""
        return -(-steps // self.chunk)


def cut(steps: int, inner: int, state: int, *, back: bool = False) -> Cut:
    """Choose the cut, or that of the way back, from shapes alone: it never waits for the device.

    Both keep the same states, since chunks are whole intervals.
    """
    states, block, blocks, group = _tile(inner, state)
    chunk = 16
    # Longer chunks mean fewer states passed on: on the way there, on the way back, and sums.
    links = 3 * 4 * steps * states * block * blocks
    while chunk < LONGEST_CHUNK and steps * blocks > 1.4 * TARGET_PROGRAMS * chunk:
        if chunk >= LONG_CHUNK and links <= SMALL_LINKS * chunk:
            break
        chunk *= 2
    if chunk == LONGEST_CHUNK:
        evens = EVEN_CHUNKS_BACK if back else EVEN_CHUNKS
        chunk = max(evens, key=lambda even: _filled(-(-steps // even)))
    return Cut(chunk, group, _interval(steps, inner, state), states, block, blocks)


def states_shape(steps: int, inner: int, state: int) -> tuple[int, int, int]:
    """Return the shape of what the backward pass starts from, in tiles of all channels.

    First come the states, then one tile for log2(e) A, then those that hold the bits of the starts.
    """
    states, block, blocks, _ = _tile(inner, state)
    width = block * blocks
    tiles = -(-steps // _interval(steps, inner, state))
    return tiles + min(steps, 1) + -(-start_words(steps) // (states * width)), states, width


def start_words(steps: int) -> int:
    """Return how many words of 32 bits tell the steps that start a sequence."""
    return -(-steps // 32)


def _filled(programs: int) -> float:
    """Return which share of their waves so many programs fill."""
    return programs / (-(-programs // WAVE) * WAVE)


def _tile(inner: int, state: int) -> tuple[int, int, int, int]:
    states = 1 << (state - 1).bit_length()
    block = BLOCK_CHANNELS if states <= BLOCK_CHANNELS else BLOCK_CHANNELS // 2
    return states, block, -(-inner // block), max(1, min(4, 64 // states))


def _interval(steps: int, inner: int, state: int) -> int:
    states, block, blocks, group = _tile(inner, state)
    dense = -(-steps // group) * states * block * blocks * 4
    return group if dense <= SMALL_STATES else SPARSE_INTERVAL
