import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.processes import ROOT
from tests.helpers.scripts import load_script, run_script

pytest.importorskip("rdkit")
pytest.importorskip("lightgbm")

# Chains with and without an amine: the first label asks for it, the second for nothing to be seen.
SMILES = ["C" * size + end for size in range(4, 84) for end in ("O", "N", "CN", "CO")]


def test_a_substructure_is_found_and_noise_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script("fingerprints", monkeypatch)
    monkeypatch.setattr(script, "RADII", (1, 2))
    rng = np.random.default_rng(0)
    labels = [[int("N" in each), int(rng.integers(2))] for each in SMILES]
    table = [
        "smiles,labels",
        *(f'{each},"{label}"' for each, label in zip(SMILES, labels, strict=True)),
    ]
    (tmp_path / "molecules.csv").write_text("\n".join(table))
    np.savez(tmp_path / "split.npz", split=rng.permutation(np.arange(len(SMILES)) % 3))
    words = (tmp_path / "molecules.csv", tmp_path / "split.npz")
    found = run_script(script, monkeypatch, tmp_path / "found.json", *words)
    assert [row["radius"] for row in found["rows"]] == [1, 2]
    # one label is known and one is a coin
    assert 0.6 < found["test"] < 0.95
    best = max(found["rows"], key=lambda row: row["validation"])
    assert (found["radius"], found["test"]) == (best["radius"], best["test"])


def test_the_page_has_the_record() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "fingerprints_cpu.json").read_text())
    page = (ROOT / "docs" / "results.md").read_text().partition("## Without a network")[2]
    assert f"{found['test']:.4f} on test, {found['validation']:.4f} on" in page
