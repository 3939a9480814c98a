"""Pictures of sets can be read: nothing lies over anything else, counts are whole numbers."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.data.plot import BINS, draw_summary, plot_summary, whole_bins
from graphmamba.data.summary import summarise
from graphmamba.data.tables import GraphColumns, Pairs
from graphmamba.errors import UserError

pytest.importorskip("matplotlib")


def paths(*sizes: int) -> GraphColumns:
    """Paths of so many nodes, one way."""
    nodes = torch.tensor(sizes)
    begins = torch.cat([torch.arange(size - 1) for size in sizes])
    return GraphColumns(
        node_ptr=torch.cat([torch.zeros(1).long(), nodes.cumsum(0)]),
        edge_ptr=torch.cat([torch.zeros(1).long(), (nodes - 1).cumsum(0)]),
        edge_index=torch.stack([begins, begins + 1]),
    )


def drawn(graphs: GraphColumns, names: tuple[str, ...] = ()) -> tuple[Any, dict[str, Any]]:
    """The figure, laid out, and its panels by their titles."""
    figure = draw_summary(summarise(graphs, names=names), "A set")
    figure.draw_without_rendering()
    return figure, {panel.get_title(loc="left"): panel for panel in figure.axes}


def assert_apart(figure: Any) -> None:
    """No label of an axis touches the next one, and no legend a panel's bars."""
    for panel in figure.axes:
        low, high = panel.get_xlim(), panel.get_ylim()
        for axis, ends in ((panel.xaxis, sorted(low)), (panel.yaxis, sorted(high))):
            boxes = [
                tick.label1.get_window_extent()
                for tick in axis.get_major_ticks()
                if ends[0] <= tick.get_loc() <= ends[1]
            ]
            for one, other in pairwise(boxes):
                assert not one.overlaps(other), (panel.get_title(loc="left"), one, other)
        legend = panel.get_legend()
        if legend is not None:
            assert legend.get_window_extent().y0 >= panel.get_window_extent().y1 - 2


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize("file", ["info.png", "info.svg"])
def test_a_plot_is_written(tmp_path: Path, file: str) -> None:
    plot_summary(summarise(paths(4, 2)), "Two graphs", tmp_path / file)
    assert (tmp_path / file).stat().st_size > 1_000


@pytest.mark.parametrize("file", ["info.word", "info"])
def test_another_ending_is_rejected(tmp_path: Path, file: str) -> None:
    with pytest.raises(UserError, match="plot must end in"):
        plot_summary(summarise(paths(4, 2)), "Two graphs", tmp_path / file)
    assert not [*tmp_path.iterdir()]


def test_a_plot_that_is_cut_off_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plot_summary(summarise(paths(4, 2)), "Two graphs", tmp_path / "info.png")
    before = (tmp_path / "info.png").read_bytes()

    def half(_figure: Any, path: Path, **_: object) -> None:
        path.write_bytes(before[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    with pytest.raises(KeyboardInterrupt):
        plot_summary(summarise(paths(4, 2)), "Two graphs", tmp_path / "info.png")
    assert (tmp_path / "info.png").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["info.png"]


def test_many_classes_with_long_names_stay_apart() -> None:
    graphs = paths(*range(2, 44))
    graphs.graphs["y"] = torch.arange(42) % 21
    names = tuple(f"a class with a rather long name, number {place}" for place in range(21))
    figure, panels = drawn(graphs, names)
    assert_apart(figure)
    shown = ticks(panels["labels"].yaxis)
    assert len(set(shown)) == 21
    assert all(name.endswith(f"number {place}") for place, name in enumerate(shown))


def test_the_most_frequent_of_very_many_classes_are_named() -> None:
    graphs = paths(*[3] * 60)
    graphs.graphs["y"] = torch.cat([torch.arange(40), torch.arange(20, 40)])
    figure, panels = drawn(graphs)
    assert_apart(figure)
    assert ticks(panels["labels, 22 of 40"].yaxis)[-20:] == [str(name) for name in range(20, 40)]


@pytest.mark.parametrize("sizes", [(2,), (2, 3, 4), (198, 500, 350), (40, 75, 600), (3, 2_000)])
def test_counts_are_whole_and_their_labels_apart(sizes: tuple[int, ...]) -> None:
    figure, panels = drawn(paths(*sizes))
    assert_apart(figure)
    assert len(panels) == 3
    for panel in panels.values():
        for axis in (panel.xaxis, panel.yaxis):
            shown = ticks(axis)
            assert shown
            # two places that are rounded to one number would not be whole
            assert len(set(shown)) == len(shown)


def test_a_target_has_a_histogram_and_several_have_boxes() -> None:
    graphs = paths(*range(2, 12))
    graphs.graphs["y"] = torch.linspace(0.1, 0.9, 10)[:, None]
    figure, panels = drawn(graphs, ("size",))
    assert_apart(figure)
    assert sum(bar.get_height() for bar in panels["target size"].patches) == 10
    graphs.graphs["y"] = torch.rand(10, 11) * 1000
    graphs.graphs["y"][:, 3] = torch.nan
    names = tuple(f"target_{place}" for place in range(11))
    figure, panels = drawn(graphs, names)
    assert_apart(figure)
    assert ticks(panels["targets"].yaxis) == list(names)


def test_links_have_their_pairs_counted() -> None:
    graphs = paths(2, 3, 4)
    graphs.pairs["edge_label_index"] = Pairs(torch.tensor([0, 2, 3, 5]), torch.zeros(2, 5).long())
    figure, panels = drawn(graphs)
    assert_apart(figure)
    heights = [bar.get_height() for bar in panels["labelled pairs of a graph"].patches]
    assert heights == [1, 2]


@pytest.mark.parametrize("is_log", [False, True])
def test_bins_hold_all_whole_numbers(is_log: bool) -> None:
    for numbers in ([7], [3, 5, 4], [8, 1000], [1, 100_000]):
        ends = whole_bins(torch.tensor(numbers), is_log=is_log)
        assert len(ends) <= BINS + 2
        assert ends[0] < min(numbers) <= max(numbers) < ends[-1]
        assert all((end - 0.5).is_integer() for end in ends.tolist())
