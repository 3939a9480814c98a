"""Pictures of sets."""

from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.data.plot import BINS, draw_summary, plot_summary, whole_bins
from graphmamba.data.summary import summarise
from graphmamba.data.tables import GraphColumns, Pairs, boundaries
from graphmamba.errors import UserError

pytest.importorskip("matplotlib")


def paths(*sizes: int) -> GraphColumns:
    """Paths of so many nodes, one way."""
    nodes = torch.tensor(sizes)
    begins = torch.cat([torch.arange(size - 1) for size in sizes])
    edge_index = torch.stack([begins, begins + 1])
    return GraphColumns(boundaries(nodes), boundaries(nodes - 1), edge_index)


def drawn(graphs: GraphColumns, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The panels of the figure by their titles."""
    figure = draw_summary(summarise(graphs, names=names), "A set")
    figure.draw_without_rendering()
    return {panel.get_title(loc="left"): panel for panel in figure.axes}


def rows_of(panel: Any) -> list[str]:
    return [label.get_text() for label in panel.yaxis.get_ticklabels()]


@pytest.mark.parametrize("file", ["info.png", "info.svg"])
def test_a_plot_is_written(tmp_path: Path, file: str) -> None:
    plot_summary(summarise(paths(4, 2)), "Two graphs", tmp_path / file)
    assert (tmp_path / file).stat().st_size > 1_000


@pytest.mark.parametrize("file", ["info.word", "info"])
def test_another_ending_is_rejected(tmp_path: Path, file: str) -> None:
    with pytest.raises(UserError, match="plot must end in"):
        plot_summary(summarise(paths(4, 2)), "Two graphs", tmp_path / file)
    assert not [*tmp_path.iterdir()]


def test_the_most_frequent_of_very_many_classes_are_named() -> None:
    graphs = paths(*[3] * 60)
    graphs.graphs["y"] = torch.cat([torch.arange(40), torch.arange(20, 40)])
    names = tuple(f"a class with a rather long name, number {place}" for place in range(40))
    panel = drawn(graphs, names)["labels, 22 of 40"]
    shown = rows_of(panel)
    assert len(set(shown)) == 22
    assert all(f"number {place}" in " ".join(shown) for place in range(20, 40))


def test_sizes_over_many_powers_of_ten_have_a_logarithmic_axis() -> None:
    panels = drawn(paths(2, 3, 5_000))
    assert panels["size of a graph"].get_xscale() == "log"
    assert panels["outgoing edges of a node"].get_yscale() == "log"
    sizes = drawn(paths(12, 39, 156))["size of a graph"]
    named = {label.get_text() for label in sizes.get_xticklabels(which="both")} - {""}
    assert {"20", "50", "100"} <= named
    assert all(name.strip("0") in {"1", "2", "5"} for name in named)
    wide = drawn(paths(10, 5_000))["size of a graph"].get_xticklabels(which="both")
    named = {label.get_text() for label in wide} - {""}
    assert {"10", "100", "1,000"} <= named
    assert all(name.strip("0,") == "1" for name in named)
    assert drawn(paths(4, 5))["size of a graph"].get_xscale() == "linear"


def test_targets_have_boxes() -> None:
    graphs = paths(*range(2, 12))
    graphs.graphs["y"] = torch.rand(10, 11) * 1000
    graphs.graphs["y"][:, 3] = torch.nan
    names = tuple(f"target_{place}" for place in range(11))
    assert rows_of(drawn(graphs, names)["targets"]) == list(names)


def test_links_have_their_pairs_counted() -> None:
    graphs = paths(2, 3, 4)
    graphs.pairs["edge_label_index"] = Pairs(torch.tensor([0, 2, 3, 5]), torch.zeros(2, 5).long())
    panel = drawn(graphs)["labelled pairs of a graph"]
    assert [bar.get_height() for bar in panel.patches] == [1, 2]


@pytest.mark.parametrize("is_log", [False, True])
def test_bins_hold_all_whole_numbers(is_log: bool) -> None:
    for numbers in ([7], [3, 5, 4], [8, 1000], [1, 100_000]):
        ends = whole_bins(torch.tensor(numbers), is_log=is_log)
        assert len(ends) <= BINS + 2
        assert ends[0] < min(numbers) <= max(numbers) < ends[-1]
        assert all((end - 0.5).is_integer() for end in ends.tolist())
