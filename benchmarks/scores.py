"""Score trained weights again and compare with the scores in their files.

    PYTHONPATH=src python benchmarks/scores.py --device cuda --out FILE.json

On the same device with the same code all digits are the same; other devices and kernels round
differently. `graphmamba study weights --scored FILE.json` writes the new scores into the files.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.studies.report import table, write_json
from graphmamba.training.graphs import open_data
from graphmamba.training.predict import load, scorer_of

ROOT = Path(__file__).parents[1]
WEIGHTS = ROOT / "weights"
SPLITS = ("test", "validation")


def main() -> None:
    """Score, print the table, write the record; the exit status is 1 if a score differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "weights", nargs="*", type=Path, help="files; default: all in the repository"
    )
    parser.add_argument("--data_dir", type=Path, help="directory of data sets")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "scores.json")
    parser.add_argument("--commit", help="recorded commit, where the code has no git history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    files = options.weights or sorted(WEIGHTS.glob("*/*/best.safetensors"))
    rows = list(score(files, options.data_dir, device))
    Console().print(
        table(
            f"scores on {device}",
            ["weights", "split", "metric", "reported", "now", "same"],
            [_texts(row) for row in rows],
        )
    )
    write_json(options.out, {"environment": describe(device, options.commit), "rows": rows})
    if not all(row["is_same"] for row in rows):
        raise SystemExit(1)


def score(
    files: Sequence[Path], data_dir: Path | None, device: torch.device
) -> Iterator[dict[str, Any]]:
    """Score the model of each file on the data that its reported scores are of."""
    for file in files:
        trained = load(file)
        if not trained.reported:
            raise UserError(f"weights must hold their scores, and '{file}' holds none")
        store = open_data(trained.experiment, data_dir)[1]
        scorer = scorer_of(trained, store, device)
        for split in SPLITS:
            now = scorer.score(split)
            yield {
                "weights": file.parent.relative_to(file.parents[2]).as_posix(),
                "split": split,
                "metric": trained.model.task.metric,
                "is_same": now == trained.reported[split],
                "reported": trained.reported[split],
                "now": now,
            }


def _texts(row: dict[str, Any]) -> list[str]:
    metric = row["metric"]
    scores = [f"{row[name][metric]:.6f}" for name in ("reported", "now")]
    return [row["weights"], row["split"], metric, *scores, "yes" if row["is_same"] else "no"]


if __name__ == "__main__":
    main()
