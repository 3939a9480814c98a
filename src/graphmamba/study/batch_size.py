"""The numbers of a batch that work and memory depend on."""

from dataclasses import dataclass, replace

from torch_geometric.data import Data

from graphmamba.data.columns import topology_of


@dataclass(frozen=True)
class BatchSize:
    """How large a batch is."""

    graphs: int
    nodes: int
    edges: int
    """Directed."""
    longest: int
    """Nodes of the largest graph, which padded forms lay every graph out to."""
    expanders: int = 0
    """Expander edges, where Exphormer asks for them."""
    wants_edges: bool = True
    """Whether anybody reads the edge rows that a layer returns."""

    @classmethod
    def of(cls, graphs: Data) -> "BatchSize":
        """Read the sizes of a batch."""
        topology = topology_of(graphs)
        nodes = topology.batch.bincount(minlength=topology.num_graphs)
        expanders = topology.expander_index
        return cls(
            graphs=topology.num_graphs,
            nodes=topology.batch.shape[0],
            edges=topology.edge_index.shape[1],
            # a padded form has one row at least
            longest=max(1, int(nodes.max())) if topology.num_graphs else 1,
            expanders=0 if expanders is None else expanders.shape[1],
        )

    @property
    def slots(self) -> int:
        """Rows of the padded batch."""
        return self.graphs * self.longest

    def padded(self) -> "BatchSize":
        """Count the rows of padding as nodes."""
        return replace(self, nodes=self.slots)
