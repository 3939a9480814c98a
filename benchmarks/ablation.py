"""What each piece of a model is worth: the paper's ablation, and ours, over several seeds.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/ablation.py --device cuda --folder FOLDER

It is `graphmamba study ablation` for machines without that command's parser; given again, it goes
on where it was stopped.
"""

import argparse
from pathlib import Path

from graphmamba.study.ablation import ablation


def main() -> None:
    """Train what is missing, print the tables, write CSV, JSON, Markdown, PNG and SVG files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("ablation"))
    parser.add_argument("--benchmarks", default="peptides-func,pascalvoc-sp")
    parser.add_argument("--table", default="order", help="order or plus")
    parser.add_argument("--rows", default="all")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--root", type=Path, help="where data sets are kept")
    parser.add_argument("--also", type=Path, help="runs elsewhere, read and not made again")
    parser.add_argument("--out", type=Path, help="where the table and the figure go")
    parser.add_argument("--report", action="store_true", help="of finished runs; trains nothing")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--epochs", type=int, help="fewer than the recipe has, for a trial")
    given = vars(parser.parse_args())
    device, epochs = given.pop("device"), given.pop("epochs")
    overrides = {} if epochs is None else {"recipe.epochs": epochs}
    ablation(**given, options={"device": device}, overrides=overrides)


if __name__ == "__main__":
    main()
