"""What models cost, on which graphs, and what a measurement leaves to the next: nothing."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.data.cache import write_store
from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.sources import place_of, recipe_of
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.store import GraphStore
from graphmamba.studies.cost import (
    SPREADS,
    PrecomputedGraphs,
    Subject,
    draw_sizes,
    largest_batch,
    measure_cost,
    study_graphs,
    subsample,
)
from graphmamba.studies.efficiency import TITLES, experiment_of
from graphmamba.studies.flops import count_flops
from graphmamba.studies.memory import LiveStorage, OverCapError
from graphmamba.training.experiment import load_experiment

CPU = torch.device("cpu")


def subject(model: str, count: int = 4, scale: float = 0.05) -> Subject:
    graphs = study_graphs("malnet-tiny", count, scale=scale)
    experiment = load_experiment(f"malnet-tiny/{model}", {"model.layers": 1})
    return Subject(experiment, PrecomputedGraphs(graphs.graphs), CPU)


def test_running_out_of_memory_is_a_cell_and_not_the_end() -> None:
    own = subject("gps-transformer")
    fits = measure_cost(own, 2, 1, repeats=1)
    cost = measure_cost(own, 2, 1, cap=fits.peak_bytes // 2, repeats=1)
    assert cost.peak_bytes is cost.counted_flops is cost.ms is None
    assert cost.forward_flops == fits.forward_flops
    assert measure_cost(own, 2, 1, repeats=1).peak_bytes == fits.peak_bytes


def test_the_largest_batch_is_where_the_cap_lies() -> None:
    own = subject("graph-mamba")
    peak = own.peak(own.batch(0, 2), None)
    found = largest_batch(own, 64, cap=peak)
    assert (found.batch_size, found.peak_bytes, found.is_limit) == (2, peak, False)
    assert largest_batch(own, 2).is_limit
    assert largest_batch(own, 64, cap=1000).batch_size == 0


def test_attention_takes_more_memory_than_the_scan_for_larger_graphs() -> None:
    peaks = {
        model: measure_cost(subject(model, count=2, scale=0.15), 2, 1, repeats=1).peak_bytes
        for model in ("graph-mamba", "gps-transformer")
    }
    assert 2 * peaks["graph-mamba"] < peaks["gps-transformer"]


@pytest.mark.parametrize(
    "model",
    [
        "graph-mamba",
        *(
            pytest.param(model, marks=pytest.mark.thorough)
            for model in TITLES
            if model != "graph-mamba"
        ),
    ],
)
def test_a_step_leaves_nothing_wherever_it_ends(model: str) -> None:
    experiment = experiment_of("peptides-func", model, "matched")
    small = replace(experiment, model=replace(experiment.model, layers=1))
    own = Subject(small, PrecomputedGraphs(study_graphs("peptides-func", 4, scale=0.1).graphs), CPU)
    batch, live = own.batch(0, 2), LiveStorage()
    own.train(batch)
    own.optimizer.zero_grad()
    for tensor in own.resident(batch):
        live.follow(tensor)
    before = live.now
    with live:
        own.train(batch)
    own.optimizer.zero_grad()
    room = live.peak - before
    # in the forward pass, in the backward pass, not at all
    for share in (0.3, 0.8, 0.95, 1.0):
        live.cap = before + int(share * room)
        with live, suppress(OverCapError):
            own.train(batch)
        own.forget()
        assert live.now == before
    live.cap = None
    with live:
        count_flops(lambda: own.model(batch, check=False))
    assert live.now == before


@pytest.mark.parametrize("name", SPREADS)
def test_generated_graphs_have_the_sizes_of_the_set(name: str) -> None:
    sizes = draw_sizes(name, 2000)
    # what lies beyond the largest graph is cut off, MalNet's far end above all
    assert sum(sizes) / len(sizes) == pytest.approx(CATALOG[name].mean_nodes, rel=0.12)
    assert max(sizes) <= SPREADS[name].largest


def test_what_is_not_built_is_generated_or_drawn_and_says_so(tmp_path: Path) -> None:
    for name in ("malnet-tiny", "pcqm-contact"):
        found = study_graphs(name, 2, tmp_path, scale=0.1)
        assert len(found.graphs) == 2
        assert f"generated like {CATALOG[name].title}, 0.1 times as large" == found.source
        assert not any(tmp_path.iterdir())
    found = study_graphs("cluster", 3, tmp_path)
    assert "drawn" in found.source
    assert found.graphs[2].x.shape[1] == 7
    with pytest.raises(ValueError, match="name must be one of malnet-tiny"):
        study_graphs("mnist", 1)


def test_a_set_that_is_built_is_used_with_its_degree_profile(tmp_path: Path) -> None:
    graphs = sized_graphs(CATALOG["malnet-tiny"], [9, 7, 8])
    for graph in graphs:
        graph.num_nodes = graph.x.shape[0]
        del graph.x
    store = GraphStore.from_pyg(graphs, split=torch.tensor([0, 1, 0]))
    store.source = "built for this test"
    place = place_of("malnet-tiny", tmp_path)
    place.parent.mkdir(parents=True)
    write_store(store, place, recipe_of("malnet-tiny"))
    found = study_graphs("malnet-tiny", 4, tmp_path)
    assert found.source == "built for this test"
    # two graphs are for training, and are gone through twice
    assert sorted(graph.num_nodes for graph in found.graphs) == [8, 8, 9, 9]
    assert all(graph.x.shape == (graph.num_nodes, 5) for graph in found.graphs)


def test_a_share_of_the_nodes_keeps_their_order_features_and_edges() -> None:
    nodes = torch.arange(10)
    graph = Data(
        x=nodes[:, None].float(), edge_index=torch.stack([nodes, (nodes + 1) % 10]), y=nodes[:1]
    )
    half = subsample(graph, 0.5, torch.Generator().manual_seed(0))
    kept = half.x[:, 0].long()
    assert kept.tolist() == sorted(kept.tolist())
    assert len(kept) == 5
    edges = {(int(kept[i]), int(kept[j])) for i, j in half.edge_index.T.tolist()}
    whole = {(i, (i + 1) % 10) for i in range(10)}
    assert edges == {(i, j) for i, j in whole if {i, j} <= set(kept.tolist())}


@pytest.mark.parametrize(("nodes", "fraction"), [(10, 0.1), (10, 1.0), (1, 0.5), (19, 0.1)])
def test_what_would_leave_less_than_two_nodes_stays_whole(nodes: int, fraction: float) -> None:
    graph = sized_graphs(CATALOG["malnet-tiny"], [nodes])[0]
    assert subsample(graph, fraction, torch.Generator().manual_seed(0)) is graph
