"""Operations, memory and time of a training step, and the graphs they are measured on."""

from contextlib import suppress
from dataclasses import replace
from functools import partial
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
    GRAPH_SIZES,
    LiveTensors,
    MemoryCapError,
    Workload,
    generate_sizes,
    largest_batch,
    limited_memory,
    measure_cost,
    peak_bytes,
    release_memory,
    sample_nodes,
    study_graphs,
    study_store,
)
from graphmamba.studies.efficiency import TITLES, Cell
from graphmamba.training.experiment import load_experiment

CPU = torch.device("cpu")
ROWS = torch.ones(1000, 250)
MB = ROWS.nbytes


def workload(model: str, count: int = 4, scale: float = 0.05) -> Workload:
    experiment = load_experiment(f"malnet-tiny/{model}", {"model.layers": 1})
    return Workload(experiment, partial(study_store, "malnet-tiny", count, None, scale, 1.0), CPU)


def test_freed_tensors_are_not_counted() -> None:
    assert peak_bytes(lambda: ((ROWS * 2) + 1) * 3, CPU) == 2 * MB
    kept: list[torch.Tensor] = []
    assert peak_bytes(lambda: kept.extend(ROWS * i for i in range(4)), CPU) == 4 * MB
    assert peak_bytes(lambda: ROWS.view(-1)[10:].reshape(-1, 1), CPU, [ROWS, ROWS.T]) == MB
    leaf = ROWS.clone().requires_grad_()
    assert peak_bytes(lambda: leaf.exp().sum().backward(), CPU, [leaf]) // MB == 3


def test_a_step_over_the_cap_raises() -> None:
    assert peak_bytes(lambda: ROWS * 2, CPU, cap=MB) == MB
    with pytest.raises(MemoryCapError, match="2,000,000 bytes are more than the cap of 1,500,000"):
        peak_bytes(lambda: ROWS * 2 + ROWS.exp(), CPU, cap=3 * MB // 2)


def test_memory_of_a_failed_backward_pass_is_released() -> None:
    first, second = ROWS.clone().requires_grad_(), ROWS.clone().requires_grad_()
    live = LiveTensors()

    def reject(_: torch.Tensor) -> None:
        raise MemoryCapError

    with live:
        kept, broken = first.exp(), second.exp()
        broken.register_hook(reject)
        # the later one is first in the backward pass, and fails; the other one stays in the queue
        total = (kept + broken).sum()
        with pytest.raises(MemoryCapError):
            total.backward()
    del kept, broken, total
    release_memory(CPU)
    assert live.now == 0


@pytest.mark.gpu
def test_peak_and_cap_on_a_gpu() -> None:
    device = torch.device("cuda")
    rows = torch.ones(1000, 250, device=device)
    peak = peak_bytes(lambda: rows.exp().sum(), device, [rows, rows.T])
    assert 2 * MB <= peak < 3 * MB
    others = torch.empty(100 * MB, dtype=torch.uint8, device=device)
    assert peak_bytes(lambda: rows.exp().sum(), device, [rows]) == pytest.approx(peak, rel=0.1)
    del others
    release_memory(device)
    with limited_memory(device, 2**30), pytest.raises(torch.OutOfMemoryError):
        torch.empty(2**31, device=device)
    assert torch.empty(2**31, dtype=torch.uint8, device=device).nbytes == 2**31


def test_running_out_of_memory_is_a_result() -> None:
    own = workload("gps-transformer")
    fits = measure_cost(own, 2, 1, repeats=1)
    cost = measure_cost(own, 2, 1, cap=fits.peak_bytes // 2, repeats=1)
    assert cost.peak_bytes is cost.counted_flops is cost.ms is None
    assert cost.forward_flops == fits.forward_flops
    assert measure_cost(own, 2, 1, repeats=1).peak_bytes == fits.peak_bytes


def test_the_largest_batch_fits_within_the_cap() -> None:
    own = workload("graph-mamba")
    peak = own.peak(own.batch(0, 2), None)
    found = largest_batch(own, 64, cap=peak)
    assert (found.batch_size, found.peak_bytes, found.is_limit) == (2, peak, False)
    assert largest_batch(own, 2).is_limit
    assert largest_batch(own, 64, cap=1000).batch_size == 0


@pytest.mark.parametrize(
    "model", [pytest.param(each, marks=pytest.mark.thorough) for each in TITLES]
)
def test_a_step_that_fails_anywhere_leaves_no_memory_behind(model: str) -> None:
    experiment = Cell("models", "peptides-func", model, "matched").experiment()
    small = replace(experiment, model=replace(experiment.model, layers=1))
    own = Workload(small, partial(study_store, "peptides-func", 4, None, 0.1, 1.0), CPU)
    batch, live = own.batch(0, 2), LiveTensors()
    own.train(batch)
    own.optimizer.zero_grad()
    for tensor in own.resident(batch):
        live.add(tensor)
    before = live.now
    with live:
        own.train(batch)
    own.optimizer.zero_grad()
    room = live.peak - before
    # fails in the forward pass, in the backward pass, not at all
    for share in (0.3, 0.8, 1.0):
        live.cap = before + int(share * room)
        with live, suppress(MemoryCapError):
            own.train(batch)
        own.release()
        assert live.now == before


@pytest.mark.parametrize("name", GRAPH_SIZES)
def test_generated_graphs_have_the_sizes_of_the_data_set(name: str) -> None:
    sizes = generate_sizes(name, 2000)
    # sizes are clamped, which matters for MalNet-Tiny
    assert sum(sizes) / len(sizes) == pytest.approx(CATALOG[name].mean_nodes, rel=0.12)
    assert max(sizes) <= GRAPH_SIZES[name][1]


def test_graphs_come_from_a_built_set_its_recipe_or_are_generated(tmp_path: Path) -> None:
    graphs, source = study_graphs("malnet-tiny", 2, tmp_path, scale=0.1)
    assert (len(graphs), source) == (2, "generated like MalNet-Tiny, 0.1 times as large")
    assert "drawn" in study_graphs("cluster", 3, tmp_path)[1]
    graphs = sized_graphs(CATALOG["malnet-tiny"], [9, 7, 8])
    for graph in graphs:
        graph.num_nodes = graph.x.shape[0]
        del graph.x
    store = GraphStore.from_pyg(graphs, split=torch.tensor([0, 1, 0]))
    store.source = "built for this test"
    place = place_of("malnet-tiny", tmp_path)
    place.parent.mkdir(parents=True)
    write_store(store, place, recipe_of("malnet-tiny"))
    graphs, source = study_graphs("malnet-tiny", 4, tmp_path)
    assert source == "built for this test"
    # the two training graphs are repeated
    assert sorted(graph.num_nodes for graph in graphs) == [8, 8, 9, 9]
    assert all(graph.x.shape == (graph.num_nodes, 5) for graph in graphs)


def test_a_share_of_the_nodes_keeps_their_order_features_and_edges() -> None:
    nodes = torch.arange(10)
    graph = Data(
        x=nodes[:, None].float(), edge_index=torch.stack([nodes, (nodes + 1) % 10]), y=nodes[:1]
    )
    generator = torch.Generator().manual_seed(0)
    kept = (half := sample_nodes(graph, 0.5, generator)).x[:, 0].long().tolist()
    assert kept == sorted(kept)
    assert len(kept) == 5
    edges = {(kept[i], kept[j]) for i, j in half.edge_index.T.tolist()}
    assert edges == {(i, (i + 1) % 10) for i in range(10) if {i, (i + 1) % 10} <= set(kept)}
    # a graph that would keep fewer than two nodes stays whole
    assert sample_nodes(graph, 0.1, generator) is sample_nodes(graph, 1.0, generator) is graph
