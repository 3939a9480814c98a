"""Operations, memory and time of Graph-Mamba and its rivals: the paper's two efficiency figures.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/efficiency.py --device cuda --folder FOLDER

It is `graphmamba study efficiency` for machines without that command's parser.
"""

import argparse
import math
from pathlib import Path

from graphmamba.study.efficiency import efficiency


def main() -> None:
    """Measure, print the tables, write CSV, JSON, PNG and SVG files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("efficiency"))
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--memory-cap", default="24GB", help="beyond it a cell says OOM")
    parser.add_argument("--quick", action="store_true", help="small graphs, few of them")
    parser.add_argument("--part", default="all", help="all, malnet or mixers")
    parser.add_argument("--root", type=Path, help="where data sets are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    parser.add_argument("--max-time", type=float, default=math.inf, help="seconds to measure for")
    efficiency(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
