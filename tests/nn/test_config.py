"""What cannot be built is rejected: entries, arguments, parts that do not fit."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from graphmamba import GatedGCNConv, GraphMambaBlock, GraphMambaLayer
from graphmamba.data.catalog import CATALOG, Features
from graphmamba.errors import UserError
from graphmamba.nn import (
    Attention,
    BigBird,
    ExphormerStack,
    GatedGCN,
    GPSLayer,
    MambaConfig,
    Performer,
    ResidualLayer,
    SpectralConfig,
)
from graphmamba.nn.config import (
    AttentionConfig,
    EncoderConfig,
    LaplacianConfig,
    ModelConfig,
    RandomWalkConfig,
)
from graphmamba.nn.heads import HeadConfig
from graphmamba.nn.model import GraphMamba, build_layers, check_parts_fit
from graphmamba.ordering import OrderPolicy
from tests.helpers.experiments import small_experiment
from tests.helpers.typecheck import typecheck_off

LEAST = "must be at least"
REJECTED: list[tuple[Callable[..., object], dict[str, Any], str]] = [
    (MambaConfig, {"state": 0}, f"state {LEAST} 1, got 0"),
    (MambaConfig, {"width": 9}, "width must be at most 8, got 9"),
    (MambaConfig, {"inner": 0}, f"inner {LEAST} 1, got 0"),
    (MambaConfig, {"discretization": "tustin"}, "discretization must be one of .* got 'tustin'"),
    (MambaConfig, {"backend": "cuda"}, "backend must be one of .* got 'cuda'"),
    (LaplacianConfig, {"form": "sum"}, "laplacian.form must be one of 'deepset'"),
    (LaplacianConfig, {"form": "transformer", "heads": 3}, "must divide channels=16, got 3"),
    (RandomWalkConfig, {"walk_length": 0}, f"random_walk.walk_length {LEAST} 1, got 0"),
    (EncoderConfig, {"normalize_inputs": "mnist"}, "normalize_inputs must be one of"),
    (EncoderConfig, {"pre_layers": -1}, f"pre_layers {LEAST} 0, got -1"),
    (ModelConfig, {"channels": "x"}, "model.channels must be int, got 'x'"),
    (ModelConfig, {"global_dropout": 1.0}, r"model.global_dropout must be in \[0, 1\)"),
    (AttentionConfig, {"heads": 0}, f"attention.heads {LEAST} 1, got 0"),
    (SpectralConfig, {"num_eigenvectors": 0}, "spectral.num_eigenvectors must be"),
    (SpectralConfig, {"cutoff": 0.0}, "spectral.cutoff must be positive and finite, got 0.0"),
    (HeadConfig, {"layers": 0}, f"head.layers {LEAST} 1, got 0"),
    (HeadConfig, {"pooling": "median"}, r"head.pooling must be one of .*'mean\+sum', got"),
    (HeadConfig, {"dropout": 1.0}, r"head.dropout must be in \[0, 1\), got 1.0"),
    (HeadConfig, {"sum_divisor": 0.0}, r"head.sum_divisor must be positive and finite, got 0.0"),
    (OrderPolicy, {"score": "pagerank"}, "score must be one of .*'degree'.* got 'pagerank'"),
    (OrderPolicy, {"bins": 10**9}, "bins must be at most 65536, got 1000000000"),
    (OrderPolicy, {"eval_samples": -1}, f"eval_samples {LEAST} 1, got -1"),
    (OrderPolicy, {"noise_width": float("nan")}, "noise_width must be positive .*, got nan"),
    (OrderPolicy, {"score": "none", "noise": "normal"}, "noise must be .* got 'normal'"),
    (OrderPolicy, {"score": "spectral", "noise": "none"}, "noise must be .* got 'none'"),
    (GraphMambaBlock, {"channels": 1.5}, "channels must be int, got 1.5"),
    (GraphMambaBlock, {"channels": 0}, f"channels {LEAST} 1, got 0"),
    (GraphMambaBlock, {"channels": 8, "input_norm": "rms"}, "input_norm must be one of"),
    (GraphMambaBlock, {"channels": 8, "options": "x"}, "options must be MambaConfig, got 'x'"),
    (GraphMambaBlock, {"channels": 8, "policy": "x"}, "policy must be OrderPolicy, got 'x'"),
    (GraphMambaLayer, {"channels": 0}, f"channels {LEAST} 1, got 0"),
    (GraphMambaLayer, {"channels": 8, "dropout": 2.0}, r"dropout must be in \[0, 1\), got 2.0"),
    (GraphMambaLayer, {"channels": 8, "norm": "x"}, "norm must be one of .* got 'x'"),
    (GraphMambaLayer, {"channels": 8, "layer": -1}, f"layer {LEAST} 0, got -1"),
    (GatedGCNConv, {"channels": "8"}, "channels must be int, got '8'"),
    (GatedGCNConv, {"channels": 8, "backend": "x"}, "backend must be one of .* got 'x'"),
    (GatedGCNConv, {"channels": 8, "activation": "x"}, "activation must be one of .* got 'x'"),
    (Attention, {"channels": 8, "heads": 3}, "heads must divide channels=8, got 3"),
    (Performer, {"channels": 8, "heads": 3}, "heads must divide channels=8, got 3"),
    (BigBird, {"channels": 8, "heads": 0}, "heads must divide channels=8, got 0"),
    (ExphormerStack, {"channels": 8, "layers": 1, "heads": 3}, "heads must divide channels=8"),
    (
        GPSLayer,
        {"channels": 8, "local_model": None, "global_model": None},
        "local_model and global_model must not both be None",
    ),
]


@pytest.mark.parametrize(("make", "given", "message"), REJECTED)
def test_wrong_arguments_are_rejected(
    make: Callable[..., object], given: dict[str, Any], message: str
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        make(**given)


EXPHORMER = {"model.global_model": "exphormer"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            {"model.global_model": "transformer", "model.attention.heads": 5},
            "heads must divide channels=32",
        ),
        ({"model.channels": 16}, "channels must be more than the 16"),
        ({"model.global_model": "none", "model.local_model": "none"}, "must not be 'none'"),
        ({"model.layer": "residual", "model.local_model": "none"}, "must not be 'none'"),
        ({"model.layer": "residual"}, "without a residual of its own .*, got 'gatedgcn'"),
        ({**EXPHORMER, "model.local_model": "gcn"}, "'gatedgcn' .* for Exphormer, got 'gcn'"),
        ({**EXPHORMER, "model.layer": "residual"}, "model.layer 'gps' for Exphormer"),
        ({**EXPHORMER, "model.virtual_node": True}, "must be off for Exphormer"),
        ({**EXPHORMER, "model.spectral.cutoff": 2.0}, "must be off for Exphormer"),
        ({"model.local_model": "gcn", "model.centered_sums": True}, "add up neighbours"),
        (
            {"encoder.stable_gate_eigenvectors": 4, "model.local_model": "gine"},
            "must be 'gatedgcn' where positions modulate its gates, got 'gine'",
        ),
        ({"encoder.has_edges": False}, "encoder.has_edges must be true .* for 'gatedgcn'"),
        (
            {
                "encoder.has_edges": False,
                "model.local_model": "gcn",
                "encoder.reverse_edges": True,
            },
            "encoder.has_edges must be true",
        ),
        ({"encoder.has_degree": True}, "where nodes are atoms, got True and 'none'"),
    ],
)
def test_parts_that_do_not_fit_are_rejected(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        small_experiment("peptides-func", **overrides).build()


VOC = CATALOG["pascalvoc-sp"]
STANDARD = EncoderConfig(normalize_inputs="pascalvoc-sp")


@pytest.mark.parametrize(
    ("features", "reported"),
    [
        (replace(VOC.features, node_columns=2), "got 'pascalvoc-sp' for 2 and 2"),
        (replace(VOC.features, edge_columns=1), "got 'pascalvoc-sp' for 14 and 1"),
        (CATALOG["peptides-func"].features, "got 'pascalvoc-sp' for 0 and"),
    ],
)
def test_statistics_of_other_columns_are_rejected(features: Features, reported: str) -> None:
    rule = "encoder.normalize_inputs must be 'none' for other columns than those of pascalvoc-sp, "
    with pytest.raises(UserError, match=f"{rule}14 numbers a node and 2 an edge, {reported}"):
        check_parts_fit(features, ModelConfig(), STANDARD)
    for fitting in (VOC.features, replace(VOC.features, edges="none", edge_columns=0)):
        check_parts_fit(fitting, ModelConfig(), STANDARD)


def test_what_is_no_description_is_rejected() -> None:
    nothing: Any = {}
    with typecheck_off():
        with pytest.raises(UserError, match="features must be Features, got dict"):
            GraphMamba(nothing, VOC.task)
        with pytest.raises(UserError, match="task must be Task, got dict"):
            GraphMamba(VOC.features, nothing)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_an_expander_of_one_permutation_is_attended_along(degree: int) -> None:
    attention = AttentionConfig(expander_degree=degree)
    config = ModelConfig(channels=8, global_model="exphormer", attention=attention)
    (stack,) = build_layers(config)
    assert stack.has_expander == (degree > 0)


def test_without_a_global_model_a_layer_is_plain_whatever_the_entry() -> None:
    for name in ("gps", "residual"):
        config = ModelConfig(8, 1, local_model="gcne", global_model="none", layer=name)
        (layer,) = build_layers(config)
        assert isinstance(layer, ResidualLayer)
        (alone,) = build_layers(replace(config, local_model="gatedgcn"))
        assert isinstance(alone, GatedGCN)
