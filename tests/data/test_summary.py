"""Figures of a set, and the two commands that show them."""

import re
import time
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmamba.cli import main
from graphmamba.data import summary as summary_file
from graphmamba.data.datasets.sbm import generate_pattern
from graphmamba.data.summary import summarise
from graphmamba.data.tables import GraphColumns, Pairs
from graphmamba.errors import UserError
from tests.data.custom.test_open import write_folder, write_npz
from tests.helpers.own_files import write_rings, write_rows
from tests.helpers.raw_files import write_malnet


def two_graphs() -> GraphColumns:
    """A path of four nodes, one way; two nodes without edges."""
    return GraphColumns(
        node_ptr=torch.tensor([0, 4, 6]),
        edge_ptr=torch.tensor([0, 3, 3]),
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        graphs={"y": torch.tensor([2, 0])},
    )


def test_figures_of_known_graphs() -> None:
    summary = summarise(two_graphs())
    assert summary.split_sizes == [2, 0, 0]
    assert summary.nodes.tolist() == [4, 2]
    assert summary.edges.tolist() == [3, 0]
    assert summary.degrees.tolist() == [3, 3]
    assert summary.labels == {"0": 1, "1": 0, "2": 1}
    assert summary.diameters.tolist() == [3, 0]


def test_names_of_another_set_are_reported() -> None:
    with pytest.raises(UserError, match=r"names must be those of the 3 classes .* got 2: no, yes"):
        summarise(two_graphs(), names=["no", "yes"])


def test_labels_of_several_at_once_are_counted_and_numbers_are_not() -> None:
    graphs = two_graphs()
    graphs.graphs["y"] = torch.tensor([[1.0, 0, 1], [1, 0, 0]])
    assert summarise(graphs).labels == {"0": 2, "1": 0, "2": 1}
    graphs.graphs["y"] = torch.tensor([[0.5], [1]])
    assert summarise(graphs).labels == {}
    assert summarise(graphs, names=["size"]).targets == {"size": (0.75, 0.25)}


def test_labels_that_are_missing_are_counted_apart() -> None:
    graphs = two_graphs()
    graphs.graphs["y"] = torch.tensor([-1, 1])
    summary = summarise(graphs, names=["no", "yes", "maybe"])
    assert (summary.labels, summary.unlabelled) == ({"no": 0, "yes": 1, "maybe": 0}, 1)
    graphs.graphs["y"] = torch.tensor([[1.0, torch.nan], [1, 0]])
    summary = summarise(graphs)
    assert (summary.labels, summary.unlabelled) == ({"0": 2, "1": 0}, 1)
    assert summary.answers == {"0": 2, "1": 1}
    graphs.graphs["y"] = torch.tensor([[3.0, torch.nan], [torch.nan, torch.nan]])
    summary = summarise(graphs)
    assert summary.targets["0"] == (3.0, 0.0)
    assert summary.values["0"].tolist() == [3.0]
    assert summary.unlabelled == 3


def test_pairs_to_tell_apart_are_counted() -> None:
    graphs = two_graphs()
    assert summarise(graphs).pairs is None
    graphs.pairs["edge_label_index"] = Pairs(torch.tensor([0, 2, 3]), torch.zeros(2, 3).long())
    pairs = summarise(graphs).pairs
    assert pairs is not None
    assert pairs.tolist() == [2, 1]


def one_graph(edges: list[tuple[int, int]], nodes: int) -> GraphColumns:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return GraphColumns(torch.tensor([0, nodes]), torch.tensor([0, index.shape[1]]), index)


@pytest.mark.parametrize(("nodes", "graphs"), [(60_000, 1), (5_000, 10)])
def test_diameters_of_long_paths_take_no_square_of_their_length(nodes: int, graphs: int) -> None:
    path = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    path = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))[path]
    places, begin = torch.arange(graphs + 1), time.process_time()
    tracemalloc.start()
    summary = summarise(GraphColumns(nodes * places, (nodes - 1) * places, path.repeat(1, graphs)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert summary.diameters.tolist() == [nodes - 1] * graphs
    assert not summary.has_exact_diameters
    assert peak < 1000 * nodes * graphs
    assert time.process_time() - begin < 10


@given(data=st.data(), nodes=st.integers(1, 12))
def test_the_diameter_of_a_large_graph_is_a_lower_bound(data: st.DataObject, nodes: int) -> None:
    node = st.integers(0, nodes - 1)
    columns = one_graph(data.draw(st.lists(st.tuples(node, node), max_size=20)), nodes)
    exact = summarise(columns)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(summary_file, "EXACT_UP_TO", 0)
        bound = summarise(columns)
    assert exact.has_exact_diameters
    assert not bound.has_exact_diameters
    assert 0 <= int(bound.diameters) <= int(exact.diameters)
    assert bool(bound.diameters) or not bool(exact.diameters)


def test_lower_bounds_are_shown_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    folder = write_rings(tmp_path / "rings", graphs=3)
    command = ["data", "info", str(folder), "--target=taste", f"--data_dir={tmp_path}"]
    main(command)
    assert "at least" not in capsys.readouterr().out
    monkeypatch.setattr(summary_file, "EXACT_UP_TO", 2)
    main(command)
    assert re.search(r"diameter, 3 graphs +at least [1-9]", capsys.readouterr().out)


def test_diameters_are_of_a_sample() -> None:
    assert len(summarise(generate_pattern((20, 0, 0)), sample=5).diameters) == 5


def test_commands_build_and_show_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_malnet(tmp_path)
    data_dir = str(tmp_path / "sets")
    main(["data", "build", "malnet-tiny", "--from", str(tmp_path), "--data_dir", data_dir])
    assert "built from" in capsys.readouterr().out
    main(["data", "info", "malnet-tiny", f"--data_dir={data_dir}"])
    shown = capsys.readouterr().out
    for message in (
        "MalNet-Tiny",
        "2.67",
        "1,410.30",
        "out-degree",
        "diameter, 3 graphs",
        "label trojan",
    ):
        assert message in shown


def test_own_graphs_are_shown_by_their_class_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data_dir = write_folder(tmp_path / "fruit"), f"--data_dir={tmp_path}"
    main(["data", "info", str(folder), "--target", "taste", "--undirected", data_dir])
    shown = capsys.readouterr().out
    for message in ("fruit, in", "label sour", "label sweet", "2 classes", "read from fruit", "18"):
        assert message in shown
    assert "published" not in shown
    main(
        ["data", "info", str(folder), "--target=taste", "--classes=[sweet, sour, bitter]", data_dir]
    )
    assert "label bitter" in capsys.readouterr().out
    main(["data", "info", str(write_npz(tmp_path / "three.npz")), data_dir])
    assert "target y0" in capsys.readouterr().out


@pytest.mark.parametrize("label", ["bitter,hot", "[bitter, hot]"])
def test_several_labels_are_spelt_as_in_training(
    label: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_rings(tmp_path / "rings", graphs=3)
    rows = [["g0", "0", "1"], ["g1", "1", "1"], ["g2", "1", "0"]]
    write_rows(folder / "graphs.csv", ["graph", "bitter", "hot"], rows)
    main(["data", "info", str(folder), "--target", label, "--data_dir", str(tmp_path / "root")])
    assert "graph: bitter, hot, average_precision" in capsys.readouterr().out
    main(["train", str(folder), "--data.target", label, "--print_config"])
    assert "target:\n  - bitter\n  - hot\n" in capsys.readouterr().out


def test_shares_are_of_the_graphs_that_have_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ("1,1", "1,0", "1,", "0,")
    text = "".join(f"g{graph},{rows[graph % 4]}\n" for graph in range(9))
    folder = write_folder(tmp_path / "fruit", f"graph,sweet,red\n{text}")
    main(["data", "info", str(folder), "--target=[sweet, red]", f"--data_dir={tmp_path}"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "label sweet 7 (77.8%)" in shown
    assert "label red 3 (60.0%)" in shown


def test_what_is_reported_of_own_links_reads_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    folder = write_folder(tmp_path / ("fruit_" * 20))
    pairs = "".join(f"g{graph},0,{1 + part},{part}\n" for graph in range(9) for part in range(2))
    (folder / "pairs.csv").write_text(f"graph,source,target,near\n{pairs}")
    main(["data", "info", str(folder), "--target=near", f"--data_dir={tmp_path}"])
    out = capsys.readouterr().out
    shown = " ".join(out.split())
    for message in (
        "features of a node 1 number features of an edge none",
        "labelled pairs in all 18 labelled pairs per graph 2.00 from - to 2 - 2",
    ):
        assert message in shown
    assert "…" not in out
    _, _, source = out.partition("source:")
    assert "".join(source.split()) == f"readfrom{folder.name}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "info", "zinc"], "no such folder, .npz or .csv; there is: peptides-func, "),
        (["data", "info", "patern"], "no such folder, .npz or .csv; did you mean 'pattern'?"),
        (
            ["data", "info", "cluster", "--data_dir={folder}", "--plot={folder}/none/a.png"],
            "plot must be a file in a folder that exists",
        ),
        (["data", "info", "mnist", "--data_dir", "{folder}"], "mnist is not in"),
        (
            ["data", "info", "{folder}", "--target=y", "--data_dir={folder}"],
            "edges.csv must be there",
        ),
        (["data", "info", "{folder}/a.npz", "--data_dir={folder}"], "got no '"),
        (
            ["data", "info", "cluster", "--target=y"],
            "target is read for a folder of CSV files or a",
        ),
        (
            ["data", "info", "cluster", "--task=classes"],
            "task is read for custom graphs alone, got",
        ),
        (["data", "info", "malnet-tiny", "--seed=7"], "seed must be 0 for malnet-tiny, which is"),
        (["data", "info", "{folder}", "--seed=7"], ", which is not generated, got 7"),
        (["data", "build", "mnist", "--from", "{folder}/none"], "--from must be a folder"),
        (
            ["data", "build", "mnist", "--from={folder}", "--data_dir={folder}"],
            "must hold mnist_75sp",
        ),
    ],
)
def test_errors_give_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([word.format(folder=tmp_path) for word in words])
    assert stopped.value.code == 2
    streams = capsys.readouterr()
    assert message in streams.err
    assert streams.err.count("\n") == 1
