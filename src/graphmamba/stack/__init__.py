"""Node rows, edge rows -> node rows: local and global layers, the paper's and its rivals'."""

from graphmamba.stack.attention import Attention
from graphmamba.stack.backbone import Backbone
from graphmamba.stack.big_bird import BigBird
from graphmamba.stack.exphormer import ExphormerStack
from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.stack.gated_gcn_conv import GatedGCNConv
from graphmamba.stack.gcn import GCN
from graphmamba.stack.gcne import GCNE
from graphmamba.stack.gine import GINE
from graphmamba.stack.gps_layer import GPSLayer
from graphmamba.stack.graph_mamba_block import GraphMambaBlock
from graphmamba.stack.graph_mamba_layer import GraphMambaLayer
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.mamba_block import MambaBlock, MambaOptions
from graphmamba.stack.performer import Performer
from graphmamba.stack.plain_layer import PlainLayer

__all__ = [
    "GCN",
    "GCNE",
    "GINE",
    "Attention",
    "Backbone",
    "BigBird",
    "ExphormerStack",
    "GPSLayer",
    "GatedGCN",
    "GatedGCNConv",
    "GraphMambaBlock",
    "GraphMambaLayer",
    "GraphMambaMixer",
    "MambaBlock",
    "MambaOptions",
    "Performer",
    "PlainLayer",
]
