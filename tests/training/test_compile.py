"""Which runs are captured and compiled, and what happens where compiling fails."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.nn import Attention
from graphmamba.training.compile import compile_now, decided, why_not_captured
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from tests.helpers.runs import Notes, tiny_experiment, tiny_store
from tests.training.test_step import make_step


@pytest.mark.parametrize(
    ("device", "options", "processes", "reason"),
    [
        ("cpu", {}, 1, "needs a GPU"),
        ("cuda", {"sync_batchnorm": True}, 2, "sync_batchnorm"),
        ("cuda", {"sync_batchnorm": True}, 1, None),
        ("cuda", {"accumulate_grad_batches": 2}, 2, None),
    ],
)
def test_what_cannot_be_captured_says_why(
    device: str, options: dict[str, object], processes: int, reason: str | None
) -> None:
    why = why_not_captured(RunOptions(**options), torch.device(device), processes)  # type: ignore[arg-type]
    assert why is None if reason is None else reason in str(why)


@pytest.mark.parametrize(
    ("name", "device", "epochs", "asked", "decision"),
    [
        ("mnist/gatedgcn", "cuda", 2_000, "auto", "on"),
        ("mnist/gatedgcn", "cuda", 10, "auto", "off"),
        ("mnist/gatedgcn", "cuda", 10, "on", "on"),
        ("mnist/gatedgcn", "cpu", 2_000, "auto", "off"),
        # the paper's layer runs as one operator: encoder and head are left
        ("mnist/graph-mamba", "cuda", 2_000, "auto", "off"),
        ("mnist/graph-mamba", "cuda", 60_000, "auto", "on"),
    ],
)
def test_only_runs_that_win_the_time_back_are_compiled(
    name: str, device: str, epochs: int, asked: Any, decision: str
) -> None:
    experiment = tiny_experiment(name, **{"train.epochs": epochs})  # four steps an epoch
    options = RunOptions(compile=asked)
    team = ProcessGroup(device=torch.device(device))
    assert decided(options, experiment, tiny_store(experiment), team).compile == decision


def fail(*_: object, **__: object) -> None:
    raise RuntimeError("no C compiler\nand a long story")


def cannot_compile(call: object, disable: bool = False, **_: object) -> object:
    return call if disable else fail


@pytest.mark.parametrize("name", ["mnist/graph-mamba", "pattern/gps-transformer"])
def test_a_compiler_that_fails_leaves_the_model_as_it_was(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", cannot_compile)
    experiment = tiny_experiment(name)
    store = tiny_store(experiment)
    model, step = make_step(experiment, store)
    assert compile_now([model], step.warm_up) == "no C compiler"
    assert not any("forward" in vars(part) for part in model.modules())
    assert step.step(torch.arange(4)).isfinite()
    assert (name == "pattern/gps-transformer") == any(
        isinstance(part, Attention) for part in model.modules()
    )


def test_a_run_goes_on_without_a_compiler_after_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = tiny_experiment(**{"train.epochs": 1})
    notes = {}
    for asked in ("off", "on"):
        notes[asked] = Notes()
        options = RunOptions(device="cpu", compile=asked)
        run = (experiment, tiny_store(experiment), options, tmp_path / asked, notes[asked])
        if asked == "off":
            fit(*run)
            continue
        monkeypatch.setattr(torch, "compile", cannot_compile)
        with pytest.warns(UserWarning, match="torch.compile failed, .* without: no C compiler"):
            fit(*run)
    assert notes["on"].losses == notes["off"].losses


def test_warming_up_changes_nothing() -> None:
    experiment = tiny_experiment(
        "peptides-func/graph-mamba", **{"encoder.laplacian": {"channels": 4}}
    )
    model, step = make_step(experiment, tiny_store(experiment))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    generator = torch.get_rng_state()
    step.warm_up()
    for name, each in model.state_dict().items():
        assert torch.equal(each, before[name]), name
    assert torch.equal(torch.get_rng_state(), generator)
    assert model.training
