"""Two batch norms whose outputs are added: when kernels do both at once, and how."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.encode.batch_norm import is_fused
from graphmamba.encode.batch_norm.pair import Norm, batch_norm_pair
from graphmamba.encode.norm import BatchNorm

Rows = Float[Tensor, "rows channels"]


@dataclass(frozen=True)
class NormPair:
    """Two norms as one operation of kernels; `pair_of` makes it where there is one."""

    first: BatchNorm
    second: BatchNorm

    def __call__(
        self,
        a: Rows,
        b: Rows,
        count: Int[Tensor, ""] | None = None,
        *,
        before: Rows | None = None,
        rate: float = 0.0,
        seed: Int[Tensor, ""] | None = None,
    ) -> Rows:
        """Return `first(a) + second(before + drop(b))`.

        Args:
            a: Rows of the first norm.
            b: Rows of the second norm.
            count: Rows that are real, all if None. The others, which come last, become 0.
            before: Added to b before its norm; nothing if None.
            rate: Rate of dropout of b, in training.
            seed: What the dropout follows; drawn from PyTorch's generator if None.
        """
        norms = self.first, self.second
        return batch_norm_pair(
            *(a, b),
            *(Norm(norm.weight, norm.bias, norm.running(), norm.eps) for norm in norms),
            before=before,
            drop=self.second.drop_before(rate, seed, b),
            is_training=self.second.training,
            count=count,
            backend="fused",
        )


def pair_of(first: nn.Module, second: nn.Module, a: Rows, b: Rows) -> NormPair | None:
    """Return two norms as one operation, or None where each runs by itself.

    Both have to be batch norms of one process that kernels compute anyway; compilers, which fuse
    what they see, get to see both.

    Args:
        first: The norm of a.
        second: The norm of b.
        a: Rows of the first norm.
        b: Rows of the second norm.
    """
    if not (isinstance(first, BatchNorm) and isinstance(second, BatchNorm)):
        return None
    if first.training != second.training or torch.compiler.is_compiling():
        return None
    calls = (first, a), (second, b)
    if not all(is_fused(norm.backend, norm.is_synced, rows) for norm, rows in calls):
        return None
    return NormPair(first, second)
