"""All graphs of a data set as columns end to end: what every source makes and the store keeps."""

from dataclasses import dataclass, field

from jaxtyping import Int
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class Pairs:
    """A further set of node pairs of all graphs, beside the edges."""

    ptr: Int[Tensor, " boundaries"]
    """Where each graph's pairs begin; one entry more than graphs."""
    index: Int[Tensor, "2 pairs"]
    """Both nodes of each pair, counted from the first node of their own graph."""
    columns: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each pair: `edge_label` where pairs are labelled."""


@dataclass(frozen=True)
class GraphColumns:
    """Graphs laid end to end; graph `g` has nodes `node_ptr[g]` to `node_ptr[g + 1]`, and so on."""

    node_ptr: Int[Tensor, " boundaries"]
    """Where each graph's nodes begin; one entry more than graphs."""
    edge_ptr: Int[Tensor, " boundaries"]
    """Where each graph's edges begin; one entry more than graphs."""
    edge_index: Int[Tensor, "2 edges"]
    """Source and target of each directed edge, counted from the first node of its own graph."""
    nodes: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each node: `x`, and `y` where nodes are labelled."""
    edges: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each edge: `edge_attr`."""
    graphs: dict[str, Tensor] = field(default_factory=dict)
    """Columns with a row for each graph: `y` where graphs are labelled."""
    pairs: dict[str, Pairs] = field(default_factory=dict)
    """Further pairs of nodes by the name of their index: `edge_label_index`, `expander_index`."""
    split: Int[Tensor, " graphs"] | None = None
    """Part of each graph: 0 training, 1 validation, 2 test."""
    source: str = ""
    """Where the graphs come from, in words."""


def boundaries(counts: Int[Tensor, " graphs"]) -> Int[Tensor, " boundaries"]:
    """From sizes to where each begins; the last entry is where all end."""
    return functional.pad(counts.long().cumsum(0), (1, 0))
