"""Score boosted trees on molecular fingerprints on Peptides-func.

    PYTHONPATH=src python benchmarks/fingerprints.py PEPTIDES.csv.gz SPLIT.npz

The features of a molecule are counts of its circular substructures (ECFP,
https://doi.org/10.1021/ci100050t), hashed to a fixed number of columns. Each of the ten labels has
a model; radius and number of trees are chosen by average precision on the validation molecules.
"""

import argparse
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from rich.console import Console
from sklearn.metrics import average_precision_score

from graphmamba.data.splits import SPLITS
from graphmamba.environment import describe
from graphmamba.studies.report import table, write_json

RESULTS = Path(__file__).parent / "results"
SIZE = 2048
"""Columns of a fingerprint."""
RADII = (2, 3)
"""Maximum number of bonds from the centre of a substructure."""
ROUNDS, STOP, RATE = 300, 30, 0.1
"""Maximum number of trees, patience of early stopping, learning rate."""


def main() -> None:
    """Choose a radius by validation score, score the test molecules, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("molecules", type=Path, help="the published CSV, also .gz")
    parser.add_argument("split", type=Path, help=".npz: 0, 1 or 2 for each row")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "fingerprints_cpu.json")
    parser.add_argument("--commit", help="recorded commit, where the code has no git history")
    options = parser.parse_args()

    smiles, labels = read_molecules(options.molecules)
    split = np.load(options.split, allow_pickle=False)["split"]
    rows: list[dict[str, Any]] = []
    for radius in RADII:
        began = time.perf_counter()
        scores, trees = boosted(
            fingerprints(smiles, radius), labels, split, options.threads, options.seed
        )
        seconds = time.perf_counter() - began
        rows.append({"radius": radius, **scores, "trees": trees, "seconds": seconds})
        best = max(rows, key=lambda row: row["validation"])
        content: dict[str, Any] = {
            "environment": describe(torch.device("cpu"), options.commit),
            "dataset": "peptides-func",
            "seed": options.seed,
            "columns": SIZE,
            "rounds": {"most": ROUNDS, "stop": STOP, "rate": RATE},
            "rows": rows,
            "radius": best["radius"],
            "validation": best["validation"],
            "test": best["test"],
        }
        write_json(options.out, content)
        texts = [
            [str(row["radius"]), f"{row['validation']:.4f}", f"{row['test']:.4f}"] for row in rows
        ]
    Console().print(table("Peptides-func, AP", ["radius", "validation", "test"], texts))


def read_molecules(path: Path) -> tuple[list[str], Int[np.ndarray, "molecules labels"]]:
    """Read SMILES and labels from the published file."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        table = pd.read_csv(file, usecols=["smiles", "labels"])
    numbers = [np.fromstring(each.strip("[]"), sep=",", dtype=np.int64) for each in table["labels"]]
    return table["smiles"].tolist(), np.stack(numbers)


def fingerprints(smiles: list[str], radius: int) -> Float[np.ndarray, "molecules columns"]:
    """Count the circular substructures of each molecule."""
    from rdkit import Chem
    from rdkit.Chem.rdFingerprintGenerator import GetMorganGenerator

    generator = GetMorganGenerator(radius=radius, fpSize=SIZE)
    return np.stack(
        [generator.GetCountFingerprintAsNumPy(Chem.MolFromSmiles(each)) for each in smiles]
    ).astype(np.float32)


def boosted(
    counts: Float[np.ndarray, "molecules columns"],
    labels: Int[np.ndarray, "molecules labels"],
    split: Int[np.ndarray, " molecules"],
    threads: int,
    seed: int,
) -> tuple[dict[str, float], list[int]]:
    """Fit a model for each label; return the mean average precisions and the trees of each."""
    import lightgbm

    where = {name: split == part for name, part in SPLITS.items()}
    settings = {
        "objective": "binary", "metric": "average_precision", "learning_rate": RATE,
        "bagging_fraction": 0.8, "bagging_freq": 1, "feature_fraction": 0.3, "seed": seed,
        "num_threads": threads, "deterministic": True, "force_row_wise": True, "verbosity": -1,
    }  # fmt: skip
    train = lightgbm.Dataset(counts[where["train"]], labels[where["train"], 0])
    validation = train.create_valid(counts[where["validation"]])
    stop = lightgbm.early_stopping(STOP, verbose=False)
    predicted = {name: np.zeros((int(own.sum()), labels.shape[1])) for name, own in where.items()}
    trees = []
    for label in range(labels.shape[1]):
        train.construct().set_label(labels[where["train"], label])
        validation.construct().set_label(labels[where["validation"], label])
        model = lightgbm.train(
            settings,
            train,
            ROUNDS,
            valid_sets=[validation],
            callbacks=[stop],
            keep_training_booster=True,
        )
        trees.append(model.best_iteration)
        for name, own in where.items():
            predicted[name][:, label] = model.predict(counts[own])
    scores = {
        name: float(average_precision_score(labels[where[name]], predicted[name], average="macro"))
        for name in ("validation", "test")
    }
    return scores, trees


if __name__ == "__main__":
    main()
