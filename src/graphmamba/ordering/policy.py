"""`OrderPolicy`: how the nodes of a graph are ordered."""

from dataclasses import dataclass
from typing import Literal

from graphmamba.checks import check_least, check_types
from graphmamba.errors import UserError

ScoreName = Literal["degree", "eigenvector", "random_walk", "spectral", "none"]
Noise = Literal["none", "tie_breaking", "uniform", "normal"]
NoiseScope = Literal["graph", "batch"]
Clusters = Literal["none", "first", "tie_breaking"]
BinAssignment = Literal["random", "modulo"]
Direction = Literal["forward", "reverse", "bidirectional"]

MOST_BINS = 1 << 16  # per graph; each is a sequence, even if it is empty
# Columns that a score reads, besides the edges.
COLUMNS_OF: dict[ScoreName, tuple[str, ...]] = {
    "eigenvector": ("centrality",),
    "random_walk": ("random_walk",),
    "spectral": ("laplacian_vectors", "laplacian_values"),
}


@dataclass(frozen=True)
class OrderPolicy:
    """How the nodes of every graph are sorted into sequences.

    Nodes are sorted by score, ascending, so that important nodes come last and see the most
    context. Ties are broken by new random numbers in every layer, forward pass and sample. At
    evaluation outputs are averaged over several orders.
    """

    score: ScoreName = "degree"
    """Score that nodes are sorted by, ascending: out-degree, eigenvector centrality, minus the
    summed return probabilities of random walks, a random low-frequency function on the graph that
    is new in every order (`spectral`), or none."""
    noise: Noise = "tie_breaking"
    """Randomness: `tie_breaking` shuffles nodes of equal score; `uniform` and `normal` add noise to
    the score; `none` keeps equal nodes in the order of the data set."""
    noise_width: float = 1.0
    """Scale of `uniform` and `normal` noise, in standard deviations of the score."""
    noise_scope: NoiseScope = "graph"
    """Where that standard deviation is computed: in each `graph`, or over the `batch` as in the
    published code, so that the order of a graph depends on the others in the batch."""
    clusters: Clusters = "none"
    """Louvain communities: `first` keeps each together, in random order, and sorts by score inside;
    `tie_breaking` decides by them between nodes of equal score only."""
    bins: int = 1
    """Sequences per graph among which its nodes are divided."""
    bin_assignment: BinAssignment = "random"
    """Assign nodes to bins at random, or by node index modulo `bins`."""
    train_samples: int = 1
    """Node orders averaged over in training."""
    eval_samples: int = 5
    """Node orders averaged over at evaluation."""
    direction: Direction = "forward"
    """Scan along the order, against it, or the mean of both (the reverse direction has weights of
    its own)."""
    num_eigenvectors: int = 10
    """Laplacian eigenvectors of the `spectral` score, from the smallest eigenvalue upwards."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("bins", "train_samples", "eval_samples", "num_eigenvectors"):
            check_least(name, getattr(self, name), 1)
        if self.bins > MOST_BINS:
            raise UserError(f"bins must be at most {MOST_BINS}, got {self.bins}")
        if not 0 < self.noise_width < float("inf"):
            raise UserError(f"noise_width must be positive and finite, got {self.noise_width!r}")
        if self.score == "none" and self.is_blurred:
            raise UserError(
                f"noise must be 'tie_breaking' or 'none' with score='none', got {self.noise!r}"
            )
        if self.score == "spectral" and self.noise != "tie_breaking":
            raise UserError(
                f"noise must be 'tie_breaking' with score='spectral', got {self.noise!r}"
            )

    @property
    def is_random(self) -> bool:
        """Whether two node orders of the same graph can differ."""
        return self.noise != "none" or (self.bins > 1 and self.bin_assignment == "random")

    @property
    def columns(self) -> dict[str, str]:
        """Precomputed columns that the policy reads, and the option that needs each."""
        read = dict.fromkeys(COLUMNS_OF.get(self.score, ()), f"score={self.score!r}")
        if self.clusters != "none":
            read["cluster"] = f"clusters={self.clusters!r}"
        return read

    @property
    def is_blurred(self) -> bool:
        """Whether noise is added to the score itself."""
        return self.noise in ("uniform", "normal")

    @property
    def is_identity(self) -> bool:
        """Whether every graph keeps the order of the data set, in one sequence."""
        unsorted = self.score == "none" and self.clusters == "none"
        return unsorted and self.noise == "none" and self.bins == 1

    def samples(self, is_training: bool) -> int:
        """Node orders to average over; 1 if orders are not random."""
        if not self.is_random:
            return 1
        return self.train_samples if is_training else self.eval_samples


ABLATIONS = {
    "none": OrderPolicy(score="none", noise="none"),
    "permutation": OrderPolicy(score="none"),
    "cluster": OrderPolicy(score="none", clusters="first"),
    "eigenvector": OrderPolicy(score="eigenvector", noise="uniform", noise_scope="batch"),
    "degree": OrderPolicy(),
}
"""The five rows of the paper's ablation table; set `bins` with `dataclasses.replace`."""

PUBLISHED = {
    "Mamba": OrderPolicy(score="none", noise="none"),
    "Mamba_Permute": OrderPolicy(score="none", eval_samples=1),
    "Mamba_Degree": OrderPolicy(noise="none"),
    "Mamba_Hybrid": OrderPolicy(score="none"),
    "Mamba_Hybrid_Degree": OrderPolicy(),
    "Mamba_Hybrid_Degree_Noise": OrderPolicy(),
    "Mamba_Hybrid_Degree_Noise_Bucket": OrderPolicy(bins=3),
    # These two do what their published bodies do, which is not what their names say.
    "Mamba_Hybrid_Noise": OrderPolicy(score="none", bins=3),
    "Mamba_Hybrid_Noise_Bucket": OrderPolicy(score="none"),
    "Mamba_Hybrid_Degree_Bucket": OrderPolicy(bins=3, bin_assignment="modulo"),
    "Mamba_Eigen": OrderPolicy(score="eigenvector", noise="uniform", noise_scope="batch"),
    "Mamba_Eigen_Bucket": OrderPolicy(
        score="eigenvector", noise="uniform", noise_scope="batch", bins=3
    ),
    # The published code draws one order of cluster numbers per batch and, at evaluation, one order
    # inside clusters; here each graph and sample has its own, with the same distribution per graph.
    "Mamba_Cluster": OrderPolicy(score="none", clusters="first"),
    "Mamba_Cluster_Bucket": OrderPolicy(clusters="tie_breaking", bins=3, bin_assignment="modulo"),
    "Mamba_RWSE": OrderPolicy(score="random_walk", noise="normal", noise_scope="batch"),
}
"""The variants of the published code by their names there, with its three bins.

`Mamba_Augment` is missing: it visits nodes more than once.
"""
