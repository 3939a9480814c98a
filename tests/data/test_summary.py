"""Figures of a set, and the two commands that show them."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmamba.cli import main
from graphmamba.data import summary as summary_file
from graphmamba.data.summary import summarise
from graphmamba.data.tables import GraphColumns, Pairs
from tests.data.custom.test_open import write_folder, write_npz
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
    assert pairs.tolist() == [2, 1]


def one_graph(edges: list[tuple[int, int]], nodes: int) -> GraphColumns:
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    return GraphColumns(torch.tensor([0, nodes]), torch.tensor([0, index.shape[1]]), index)


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


def test_commands_build_and_show_a_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_malnet(tmp_path)
    data_dir = str(tmp_path / "sets")
    main(["data", "build", "malnet-tiny", "--from", str(tmp_path), "--data_dir", data_dir])
    assert "built from" in capsys.readouterr().out
    main(["data", "info", "malnet-tiny", f"--data_dir={data_dir}"])
    shown = capsys.readouterr().out
    for text in ("MalNet-Tiny", "2.67", "1,410.30", "out-degree", "diameter, 3 g", "label trojan"):
        assert text in shown


def test_own_graphs_are_shown_by_their_class_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data_dir = write_folder(tmp_path / "fruit"), f"--data_dir={tmp_path}"
    main(["data", "info", str(folder), "--target", "taste", "--undirected", data_dir])
    shown = capsys.readouterr().out
    for message in (
        "graph: 2 classes, accuracy",
        "label sour",
        "label sweet",
        "2 classes",
        "read from fruit",
        "18",
    ):
        assert message in shown
    assert "published" not in shown
    assert shown.splitlines()[0] == "fruit"
    stated = ["--target=taste", "--classes=[sweet, sour, bitter]"]
    main(["data", "info", str(folder), *stated, data_dir])
    assert "label bitter" in capsys.readouterr().out
    main(["data", "info", str(write_npz(tmp_path / "three.npz")), data_dir])
    assert "target y0" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["data", "info", "patern"], ".graphml file), got 'patern'; did you mean 'pattern'?"),
        (["data", "info", "mnist", "--data_dir", "{folder}"], "mnist is not in"),
        (["data", "info", "cluster", "--plot={folder}/none/a.png"], "plot must be a file in a"),
        (["data", "info", "{folder}", "--target=y"], "edges.csv must be there"),
        (["data", "info", "cluster", "--target=y"], "target is read for a folder of CSV files"),
        (["data", "info", "malnet-tiny", "--seed=7"], "seed must be 0 for malnet-tiny, which is"),
        (["data", "build", "mnist", "--from={folder}"], "must be a folder that holds mnist_75sp"),
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
