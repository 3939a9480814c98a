"""A small network on each frequency of a node and the sum over them, in one kernel on a GPU."""

from jaxtyping import Float
from torch import Tensor

from graphmamba.encode.deep_set.operators import FusedDeepSet
from graphmamba.fusing import can_fuse_single

MOST_HIDDEN = 64
"""Width whose gradients registers hold."""

Entries = Float[Tensor, "nodes frequencies"]
Rows = Float[Tensor, "nodes channels"]


def can_fuse(vectors: Entries, values: Entries, hidden: int) -> bool:
    """Tell whether `deep_set` takes such tensors: single precision, on a GPU, not compiled.

    Args:
        vectors: Entries of eigenvectors.
        values: Eigenvalues.
        hidden: Width of the hidden rows.
    """
    is_data = not (vectors.requires_grad or values.requires_grad)
    return can_fuse_single(vectors, values) and is_data and hidden <= MOST_HIDDEN


def deep_set(
    vectors: Entries,
    values: Entries,
    signs: Float[Tensor, " frequencies"] | None,
    first: Float[Tensor, "hidden 2"],
    first_bias: Float[Tensor, " hidden"],
    last: Float[Tensor, "channels hidden"],
    last_bias: Float[Tensor, " channels"],
) -> Rows:
    r"""Map each pair of entry and eigenvalue, and sum over the frequencies that a node has.

    .. math:: y_n = \sum_f \sigma(W_2\,\sigma(W_1 (s_f v_{nf}, \lambda_{nf}) + b_1) + b_2)

    over the frequencies whose entry is not NaN, with ReLU for :math:`\sigma`. Nothing between entry
    and sum is ever in memory, in either direction; the data get no gradients. Products of the
    second map are rounded to TF32 where PyTorch may round them. Repeats give the same bits.

    Args:
        vectors: v.
        values: lambda.
        signs: s; 1 if None.
        first: W_1.
        first_bias: b_1.
        last: W_2.
        last_bias: b_2.
    """
    found: Rows = FusedDeepSet.apply(vectors, values, signs, first, first_bias, last, last_bias)  # type: ignore[no-untyped-call]
    return found
