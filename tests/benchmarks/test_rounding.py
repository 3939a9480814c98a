import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.helpers.experiments import generated_batch, small_experiment, target_in
from tests.helpers.scripts import load_script

ONE = 1.0 + 2.0**-10
"""The smallest TF32 above 1."""


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("rounding", monkeypatch)


def test_numbers_are_rounded_to_the_nearest(study: ModuleType) -> None:
    given = torch.tensor([1.0 + 2.0**-12, 1.0 + 2.0**-11, ONE, 1.0 + 3 * 2.0**-12, 0.0, 3e-20])
    expected = torch.tensor([1.0, ONE, ONE, ONE, 0.0, 3e-20])
    found = study.to_tf32(given)
    assert torch.equal(found[:5], expected[:5])
    assert found[5] == pytest.approx(3e-20, rel=2**-11)
    assert torch.equal(study.to_tf32(-given), -found)
    assert torch.equal(study.to_tf32(found), found)


def test_products_are_those_of_rounded_factors_on_the_way_back_too(study: ModuleType) -> None:
    x, weight = (torch.full((1, 1), 1.0 + 2.0**-12, requires_grad=True) for _ in range(2))
    bias = torch.full((1,), 2.0**-12)
    with study.RoundedProducts():
        y = torch.nn.functional.linear(x, weight, bias)
        y.backward()
    # the sum of float32 keeps what the factors have lost
    assert y.item() == 1.0 + 2.0**-12
    assert x.grad.item() == weight.grad.item() == 1.0
    plain = torch.nn.functional.linear(x, weight)
    assert plain.item() > 1.0 + 2.0**-12


def test_tf32_is_further_off_than_float32(study: ModuleType) -> None:
    experiment = small_experiment("pascalvoc-sp/graph-mamba")
    model = experiment.build(0)
    graphs = generated_batch(experiment, model)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = study.compare(experiment, model, graphs, target_in(experiment, graphs))
    short, rounded = found["errors"]["float32"], found["errors"]["tf32"]
    for name in ("gradient", "median", "prediction"):
        assert 0 < 10 * short[name] < rounded[name] < 1
    assert rounded["largest_of"] in dict(model.named_parameters())
    # what is measured is left as it was
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_positions_have_a_step_of_their_size(study: ModuleType) -> None:
    experiment = small_experiment("pascalvoc-sp/graph-mamba")
    model = experiment.build(0)
    graphs = generated_batch(experiment, model)
    found = study.positions_of(model, graphs)
    assert 0 < len(found) <= experiment.encoder.laplacian.channels
    for channel in found:
        # ten bits behind the first
        assert 1 <= abs(channel["mean"]) / (channel["step"] * 2**10) < 2
        assert channel["deviation"] > 0


def test_what_was_measured_is_written(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {"gradient": 0.1, "median": 0.2, "largest": 0.3, "largest_of": "w", "prediction": 0.4}
    row = {"weights": "cluster", "errors": {"float32": one, "tf32": one}, "positions": []}
    monkeypatch.setattr(study, "measure", lambda *_: [row])
    out = tmp_path / "new" / "rounding.json"
    words = ["rounding.py", "cluster", "--out", str(out), "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", words)
    study.main()
    written = json.loads(out.read_text())
    assert written["rows"] == [row]
    assert (written["graphs"], written["environment"]["commit"]) == (4, "0123abc")
