"""What a run looks like: bars on a terminal, lines elsewhere, tables of results."""

import sys

from graphmamba.show.bars import Bars
from graphmamba.show.lines import Lines


def reporter_for() -> Bars | Lines:
    """Choose bars for a terminal and plain lines for everything else."""
    return Bars() if sys.stdout.isatty() else Lines()
