"""Positions of nodes from the Laplacian's eigenvectors and eigenvalues."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.nn.encoder_config import LaplacianConfig
from graphmamba.nn.mlp import relu_mlp
from graphmamba.ops.random import draw_signs


class LaplacianEncoder(nn.Module):
    """LapPE: a set network over the pairs (eigenvector entry, eigenvalue) of each node.

    Eigenvectors have no sign of their own: in training, each frequency is given a random one,
    shared by the whole batch. Frequencies that a small graph lacks are NaN and do not count.

    Reads `laplacian_vectors` and `laplacian_values`. See https://arxiv.org/abs/2205.12454.
    """

    flips: Int[Tensor, ""]
    places: Int[Tensor, " frequencies"]

    def __init__(self, config: LaplacianConfig) -> None:
        super().__init__()
        self.frequencies = config.frequencies
        self.channels = config.channels
        self.set_network = FORMS[config.form](config)
        # The signs are a function of this number alone, which is counted up in place: they are
        # the same on every device, survive a checkpoint, and can be replayed in a CUDA graph.
        self.register_buffer("flips", torch.randint(2**31, ()))
        self.register_buffer("places", torch.arange(config.frequencies), persistent=False)

    def forward(self, graphs: Data) -> Float[Tensor, "nodes channels"]:
        """Encode every node of the batch."""
        vectors = graphs.laplacian_vectors[:, : self.frequencies]
        values = graphs.laplacian_values[:, : self.frequencies]
        signs = self.draw_signs() if self.training else None
        is_missing = torch.isnan(vectors)
        vectors = vectors if signs is None else vectors * signs
        pairs = torch.stack([vectors, values], dim=-1)
        pairs = pairs.masked_fill(is_missing[:, :, None], 0.0)  # [nodes, frequencies, 2]
        return self.set_network(pairs, is_missing)

    def draw_signs(self) -> Float[Tensor, " frequencies"]:
        """One random sign per frequency, new at each call."""
        self.flips.add_(1)
        return draw_signs(self.flips, self.places)


class DeepSet(nn.Module):
    """The same small MLP on every frequency, then a sum."""

    def __init__(self, config: LaplacianConfig) -> None:
        super().__init__()
        self.mlp = relu_mlp(2, config.channels, config.layers)

    def forward(
        self,
        pairs: Float[Tensor, "nodes frequencies 2"],
        is_missing: Bool[Tensor, "nodes frequencies"],
    ) -> Float[Tensor, "nodes channels"]:
        """Sum over the frequencies that exist."""
        return self.mlp(pairs).masked_fill(is_missing[:, :, None], 0.0).sum(dim=1)


class SetTransformer(nn.Module):
    """Self-attention among the frequencies of a node, then a sum."""

    def __init__(self, config: LaplacianConfig) -> None:
        super().__init__()
        self.lift = nn.Linear(2, config.channels)
        layer = nn.TransformerEncoderLayer(config.channels, config.heads, batch_first=True)
        self.attend = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)

    def forward(
        self,
        pairs: Float[Tensor, "nodes frequencies 2"],
        is_missing: Bool[Tensor, "nodes frequencies"],
    ) -> Float[Tensor, "nodes channels"]:
        """Attend to the frequencies that exist and sum them."""
        # a node without any frequency would have a softmax over nothing
        is_hidden = is_missing & ~is_missing.all(dim=1, keepdim=True)
        rows = self.attend(self.lift(pairs), src_key_padding_mask=is_hidden)
        return rows.masked_fill(is_missing[:, :, None], 0.0).sum(dim=1)


FORMS = {"deepset": DeepSet, "transformer": SetTransformer}


class GateEncoder(nn.Module):
    """Equivariant-stable LapPE: positions that only modulate the gates of GatedGCN.

    No signs are flipped: the gates read distances between positions. Reads `laplacian_vectors`.
    See https://arxiv.org/abs/2203.00199.

    Args:
        frequencies: Eigenvectors read.
        channels: Width of the positions.
    """

    def __init__(self, frequencies: int, channels: int) -> None:
        super().__init__()
        self.frequencies = frequencies
        self.linear = nn.Linear(frequencies, channels)

    def forward(self, graphs: Data) -> Float[Tensor, "nodes channels"]:
        """Project the eigenvectors, missing ones as zeros."""
        vectors = graphs.laplacian_vectors[:, : self.frequencies]
        return self.linear(vectors.masked_fill(torch.isnan(vectors), 0.0))
