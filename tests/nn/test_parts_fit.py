"""What does not fit together is refused before a model is made."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch_geometric.data import Data

from graphmamba.config import load_experiment
from graphmamba.data.catalog import CATALOG, Features
from graphmamba.errors import UserError
from graphmamba.nn.config import StackConfig
from graphmamba.nn.encoder_config import EncoderConfig
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.parts_fit import check_parts_fit
from graphmamba.training.fit import fit
from graphmamba.training.graphs import take_graphs
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off

VOC = CATALOG["pascalvoc-sp"]
STANDARD = EncoderConfig(standardization="pascalvoc-sp")


@pytest.mark.parametrize("local", ["gatedgcn", "gine", "gcne"])
def test_layers_that_read_edges_need_them(local: Any) -> None:
    message = f"encoder.has_edges must be true for model.local='{local}', .* got False"
    bare = EncoderConfig(has_edges=False)
    with pytest.raises(UserError, match=message):
        GraphMamba(VOC.features, VOC.task, StackConfig(local=local), bare)


@pytest.mark.parametrize("local", ["gcn", "gin", "none"])
def test_layers_that_read_none_do_without(local: Any) -> None:
    check_parts_fit(VOC.features, StackConfig(local=local), EncoderConfig(has_edges=False))


@pytest.mark.parametrize(
    ("features", "told"),
    [
        (replace(VOC.features, node_columns=2), "got 'pascalvoc-sp' for 2 and 2"),
        (replace(VOC.features, edge_columns=1), "got 'pascalvoc-sp' for 14 and 1"),
        (CATALOG["peptides-func"].features, "got 'pascalvoc-sp' for 0 and"),
    ],
)
def test_statistics_of_other_columns_are_refused(features: Features, told: str) -> None:
    rule = "encoder.standardization must be 'none' for other columns than those of pascalvoc-sp, "
    with pytest.raises(UserError, match=f"{rule}14 numbers a node and 2 an edge, {told}"):
        check_parts_fit(features, StackConfig(), STANDARD)


def test_statistics_fit_columns_of_the_same_number() -> None:
    check_parts_fit(VOC.features, StackConfig(), STANDARD)
    check_parts_fit(CATALOG["coco-sp"].features, StackConfig(), STANDARD)
    check_parts_fit(replace(VOC.features, edges="none", edge_columns=0), StackConfig(), STANDARD)


def test_a_run_that_cannot_be_leaves_no_folder(tmp_path: Path) -> None:
    graphs: list[Data] = synthetic_graphs(CATALOG["mnist"], 12)
    entries = {"encoder.standardization": "pascalvoc-sp"}
    taken = take_graphs(graphs, load_experiment("pattern/default", entries))
    with pytest.raises(UserError, match="standardization must be 'none'"):
        fit(*taken, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_no_description_is_refused() -> None:
    nothing: Any = {}
    with typecheck_off():
        with pytest.raises(UserError, match="features must be Features, got dict"):
            GraphMamba(nothing, VOC.task)
        with pytest.raises(UserError, match="task must be Task, got dict"):
            GraphMamba(VOC.features, nothing)
