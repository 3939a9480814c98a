"""Other ways to compute the same run."""

from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
import torch

from graphmamba.training import evaluate as scorer_module
from graphmamba.training import fit as fit_module
from graphmamba.training.distributed import allow_tf32
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.predict import load, scorer_of
from graphmamba.training.progress import StepRecord
from tests.helpers.runs import Notes, tiny_experiment, tiny_store

PRODUCTS = torch.backends.cuda.matmul


@pytest.mark.parametrize(
    ("device", "tf32", "inside"),
    [("cuda", True, "tf32"), ("cuda", False, "ieee"), ("cuda", None, None), ("cpu", True, None)],
)
def test_products_round_as_they_did_before(
    device: str, tf32: bool | None, inside: str | None
) -> None:
    before = PRODUCTS.fp32_precision
    with suppress(RuntimeError), allow_tf32(torch.device(device), tf32):
        assert PRODUCTS.fp32_precision == (inside or before)
        raise RuntimeError
    assert PRODUCTS.fp32_precision == before


@pytest.mark.parametrize(("tf32", "expected"), [(True, "tf32"), (False, "ieee")])
def test_runs_and_scores_leave_the_rounding_of_products_as_it_was(
    tf32: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_on_gpu(_: torch.device, tf32: bool | None) -> AbstractContextManager[None]:
        return allow_tf32(torch.device("cuda"), tf32)

    for module in (fit_module, scorer_module):
        monkeypatch.setattr(module, "allow_tf32", as_on_gpu)
    seen, before = [], PRODUCTS.fp32_precision
    experiment = tiny_experiment(**{"train.epochs": 1})
    store = tiny_store(experiment)

    class Seeing(Notes):
        def on_step(self, record: StepRecord) -> None:
            seen.append(PRODUCTS.fp32_precision)
            super().on_step(record)

        def on_evaluate(self, split: str, done: int, batches: int) -> None:
            seen.append(PRODUCTS.fp32_precision)
            super().on_evaluate(split, done, batches)

    fit(experiment, store, RunOptions(device="cpu", tf32=tf32), tmp_path / "run", Seeing())
    assert PRODUCTS.fp32_precision == before
    scorer = scorer_of(load(tmp_path / "run"), store, torch.device("cpu"))
    assert PRODUCTS.fp32_precision == before
    scorer.score("test", lambda *_: seen.append(PRODUCTS.fp32_precision))
    assert PRODUCTS.fp32_precision == before
    assert set(seen) == {expected}


def test_bfloat16_learns_nearly_the_same(tmp_path: Path) -> None:
    experiment = tiny_experiment("peptides-struct/graph-mamba")
    store, notes = tiny_store(experiment), {}
    for precision in ("32-true", "bf16-mixed"):
        notes[precision] = Notes()
        options = RunOptions(precision=precision)
        fit(experiment, store, options, tmp_path / precision, notes[precision])
    exact, mixed = (each.losses for each in notes.values())
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.05)
