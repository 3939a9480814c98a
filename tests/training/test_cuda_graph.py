"""Step and evaluation as CUDA graphs, held to the plain ones, and captures that fail."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.training.cuda_graph import CapturedCall, CapturedForward, CaptureError
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.loop import Loop
from graphmamba.training.run_dir import read_rows
from tests.helpers.experiments import DESCRIBED, small_experiment
from tests.helpers.runs import Notes, assert_same_run, tiny_store


@pytest.mark.gpu
def test_every_call_counts_whether_it_is_captured_or_not() -> None:
    total = torch.zeros((), device="cuda")
    call = CapturedCall(lambda: total.add_(1), torch.cuda.Stream())
    for expected in range(1, 6):
        call()
        assert total.item() == expected
    assert not call.has_failed


@pytest.mark.gpu
def test_what_cannot_be_captured_runs_on_after_one_warning() -> None:
    total = torch.zeros((), device="cuda")

    def work() -> None:
        total.add_(torch.rand((), device="cuda").item() * 0 + 1)

    call = CapturedCall(work, torch.cuda.Stream())
    call()
    with pytest.warns(UserWarning, match="could not be captured as a CUDA graph"):
        call()
    call()
    assert total.item() == 3
    # generators, memory and further captures are as before
    torch.manual_seed(0)
    first = torch.rand(3, device="cuda")
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    test_every_call_counts_whether_it_is_captured_or_not()


@pytest.mark.gpu
def test_a_capture_that_was_asked_for_stops_the_run_where_it_fails() -> None:
    total = torch.zeros((), device="cuda")
    call = CapturedCall(lambda: total.fill_(total.item()), torch.cuda.Stream(), is_required=True)
    call()
    with pytest.raises(CaptureError, match="the step could not be captured"):
        call()


NAMES = (
    "peptides-func/graph-mamba",
    "peptides-func/graph-mamba-plus",
    "pascalvoc-sp/graph-mamba",
    "malnet-tiny/graph-mamba",
    "pattern/graph-mamba",
    "cluster/gatedgcn",
    "peptides-func/gcn-plus",
    "pattern/exphormer",
    "peptides-func/gps-transformer",
    "pascalvoc-sp/gps-transformer",
    "pattern/gps-transformer",
    "pattern/gps-performer",
    "pattern/gps-bigbird",
    "peptides-func/graph-mamba" + DESCRIBED,
)
RECIPE = {
    "train.batch_size": 6,
    "train.epochs": 40,
    "optim.warmup": 5,
    "model.dropout": 0.0,
    "model.attention.dropout": 0.0,
    "head.dropout": 0.0,
}


def losses_of(
    name: str, fast: str, rate_factor: float, folder: Path, average: float = 0.0
) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Losses of 40 epochs of 5 batches, the last of which is not full."""
    rate = small_experiment(name).optim.lr * rate_factor
    changed = RECIPE | {"optim.lr": rate, "train.ema_decay": average}
    experiment = small_experiment(name, **changed)
    store = tiny_store(experiment, train=28, others=9)
    options = RunOptions(device="cuda", cuda_graph=fast, seed=3)  # type: ignore[arg-type]
    fit(experiment, store, options, folder)
    rows = read_rows(folder / "metrics.csv")
    assert len(rows) == RECIPE["train.epochs"]
    return {
        entry: np.array([float(row[entry]) for row in rows])
        for entry in ("train_loss", "validation_loss")
    }


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "average"),
    [*((name, 0.0) for name in NAMES), (NAMES[0], 0.99), ("pattern/graph-mamba", 0.99)],
)
def test_captured_runs_go_as_plain_ones(name: str, average: float, tmp_path: Path) -> None:
    plain = losses_of(name, "off", 1.0, tmp_path / "residual", average)
    captured = losses_of(name, "on", 1.0, tmp_path / "captured", average)
    # Training amplifies what was rounded otherwise; how much, a rate shows that differs as little.
    near = losses_of(name, "off", 1 + 1e-6, tmp_path / "near", average)
    for entry, expected in plain.items():
        noise = np.maximum.accumulate(np.abs(near[entry] - expected))
        bound = 2e-2 * np.abs(expected) + 2e-3 + 3 * noise
        off = np.abs(captured[entry] - expected)
        assert (off <= bound).all(), (entry, int((off / bound).argmax()), (off / bound).max())


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_captured_evaluation_scores_as_the_plain_one(name: str) -> None:
    experiment = small_experiment(name)
    store = tiny_store(experiment, train=28, others=9).to("cuda")
    model = experiment.build().to("cuda").eval()
    ids = store.split_ids("train")
    forward = CapturedForward(model, store, ids, 6)
    expected = evaluate(model, store, "train", batch_size=6)
    for _ in range(3):
        found = evaluate(model, store, "train", batch_size=6, predict=forward.predict)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("global_model", ["transformer", "performer"])
def test_captured_attention_drops_anew_at_each_step_and_as_the_seed_says(
    global_model: str, tmp_path: Path
) -> None:
    # The same batch again and again, and weights that stay: dropout alone makes a difference.
    still = RECIPE | {
        "encoder.laplacian": None,
        "train.batch_size": 28,
        "train.epochs": 6,
        "optim.lr": 1e-12,
        "optim.weight_decay": 0.0,
    }
    losses = {}
    for run, rate in (("one", 0.5), ("same", 0.5), ("none", 0.0)):
        changed = still | {"model.attention.dropout": rate}
        experiment = small_experiment(f"peptides-func/gps-{global_model}", **changed)
        store = tiny_store(experiment, train=28, others=9)
        fit(experiment, store, RunOptions(device="cuda", cuda_graph="on", seed=3), tmp_path / run)
        rows = read_rows(tmp_path / run / "metrics.csv")
        losses[run] = [float(row["train_loss"]) for row in rows]
    assert losses["none"] == pytest.approx([losses["none"][0]] * 6, rel=1e-5)
    assert len({round(loss, 5) for loss in losses["one"]}) == 6
    assert losses["same"] == pytest.approx(losses["one"], rel=1e-5)


class _Compiling(Notes):
    """Notes when the compilation before the first step was done."""

    is_done, kernels = False, 0

    def on_compile(self, done: int, kernels: int, seconds: float) -> None:  # noqa: ARG002
        self.is_done, self.kernels = done == kernels, kernels


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name",
    ["peptides-func/graph-mamba", "pascalvoc-sp/graph-mamba-plus", "pattern/exphormer"],
)
def test_all_kernels_are_compiled_before_the_first_step_and_change_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton import knobs

    # other tests must not have compiled the same
    experiment = small_experiment(name, **(RECIPE | {"train.epochs": 2, "model.channels": 56}))
    store, compiling, late = tiny_store(experiment, train=28, others=9), _Compiling(), list[str]()

    def saw(repr: str, **_: object) -> None:  # noqa: A002 - Triton's name
        if compiling.is_done:
            late.append(repr)

    monkeypatch.setattr(knobs.runtime, "jit_post_compile_hook", saw)
    options = RunOptions(device="cuda", cuda_graph="on", compile="off", seed=3)
    fit(experiment, store, options, tmp_path / "run", compiling)
    assert compiling.kernels > 5
    assert late == []
    # kernels that are there already must not run before the first step
    fit(experiment, store, options, tmp_path / "again", compiling)
    assert_same_run(tmp_path / "run", tmp_path / "again")
    monkeypatch.setattr(Loop, "compile_kernels", lambda _: None)
    fit(experiment, store, options, tmp_path / "other")
    assert_same_run(tmp_path / "run", tmp_path / "other")
