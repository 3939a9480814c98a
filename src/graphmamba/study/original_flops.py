"""Closed formulas for the mixers as their authors' code runs them.

That code lays a batch out as if every graph were as large as the largest one before anything is
mapped, so that linear maps, convolution and scan run over rows of padding as well. Operations of a
row are counted as they are here.
"""

from graphmamba.stack.attention import Attention
from graphmamba.stack.big_bird import BigBird
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.performer import Performer
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flop_terms import dropped, linear, pointwise
from graphmamba.study.flops import Flops
from graphmamba.study.mixer_flops import (
    SPARSE_BLOCKS,
    attention,
    input_norm,
    mamba,
    performer,
)
from graphmamba.study.operator_flops.costs import NORM, SCORE

OUTER_BLOCKS = 4
"""Blocks of BigBird with rules of their own, two at each end; that code breaks where fewer are."""


def original_graph_mamba(mixer: GraphMambaMixer, size: BatchSize) -> Flops:
    """Every line-up is padded and goes through the whole block; the average is over nodes.

    Bins are padded one by one. They are drawn at random; taken here as equally full, they have as
    many rows as the graphs without bins, which is the least that they can have.
    """
    samples, block = mixer.policy.samples(mixer.training), mixer.mamba
    once = input_norm(mixer, size.slots) + mamba(block, size.slots)
    passes = sum([once] * samples, start=Flops())
    mixed = samples * size.nodes * block.out_proj.out_features
    return passes + pointwise(mixed if samples > 1 else 0)


def original_attention(mixer: Attention, size: BatchSize) -> Flops:
    """Queries, keys, values and outputs are projected in the padded batch."""
    return attention(mixer, size.padded())


def original_performer(mixer: Performer, size: BatchSize) -> Flops:
    """Queries, keys, values and outputs are projected in the padded batch."""
    return performer(mixer, size.padded())


def original_big_bird(mixer: BigBird, size: BatchSize) -> Flops:
    """The padded batch is filled up to whole blocks, and all of it goes through the layer."""
    d, block = mixer.out_proj.in_features, mixer.block
    blocks = max(OUTER_BLOCKS, -(-size.longest // block))
    rows = size.graphs * blocks * block
    # The second block and the last but one have a global one beside them, which counts once.
    near = SPARSE_BLOCKS + mixer.random_blocks
    listed = (blocks - OUTER_BLOCKS) * near + 2 * (near - 1) + 2 * blocks
    scores = size.graphs * block * block * listed
    flops = Flops(products=4 * scores * d) + pointwise(SCORE * scores * mixer.heads)
    for layer in (mixer.in_proj, mixer.out_proj, mixer.first, mixer.second):
        flops += linear(rows, layer)
    # Norms, residuals, ReLU.
    return (
        flops + pointwise((2 * NORM + 3) * rows * d) + dropped(2 * rows * d, mixer.dropout, mixer)
    )
