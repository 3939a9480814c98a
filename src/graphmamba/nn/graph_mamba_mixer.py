"""Graph-Mamba's exchange among all nodes: line up, scan, put back, average over line-ups."""

from typing import Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_is, check_least
from graphmamba.data.topology import Topology
from graphmamba.nn.mamba_block import MambaBlock, MambaOptions
from graphmamba.nn.parts import GlobalMixer
from graphmamba.ordering.permutation import Request, line_up
from graphmamba.ordering.policy import OrderPolicy

InputNorm = Literal["none", "layer"]


class GraphMambaMixer(GlobalMixer):
    """Mamba over the nodes of each graph, sorted by importance.

    https://arxiv.org/abs/2402.00789. All graphs, bins and samples go through one scan.

    Args:
        channels: Width of the node rows.
        policy: How nodes are lined up.
        options: Sizes and choices of the Mamba block.
        input_norm: `none`, as the published parameter counts prove, or the `layer` norm that the
            paper's Algorithm 1 puts before the projections.
        layer: Number of the layer in its stack, so that layers draw different line-ups.
    """

    def __init__(
        self,
        channels: int,
        policy: OrderPolicy | None = None,
        options: MambaOptions | None = None,
        input_norm: InputNorm = "none",
        layer: int = 0,
    ) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_choice("input_norm", input_norm, get_args(InputNorm))
        check_least("layer", layer, 0)
        self.policy = policy or OrderPolicy()
        check_is("policy", self.policy, OrderPolicy)
        self.layer = layer
        self.norm = nn.LayerNorm(channels) if input_norm == "layer" else nn.Identity()
        self.mamba = MambaBlock(channels, options, self.policy.direction)

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Return what each node takes from those before it."""
        line = topology.line_up
        if line is None:
            policy, samples, layer = self.request()
            line = line_up(policy, topology, samples=samples, layer=layer)
        walk = line.cu_seqlens, line.order, line.samples
        return self.mamba(self.norm(x), *walk, check=False)

    def request(self) -> Request:
        """Say which line-up the next pass asks for."""
        return self.policy, self.policy.samples(self.training), self.layer
