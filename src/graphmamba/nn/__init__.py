"""The models as modules: message passing, global models, layers; the paper's and its baselines."""

from graphmamba.nn.attention import Attention
from graphmamba.nn.backbone import Backbone
from graphmamba.nn.big_bird import BigBird
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gated_gcn_conv import GatedGCNConv
from graphmamba.nn.gcn import GCN
from graphmamba.nn.gcne import GCNE
from graphmamba.nn.gine import GINE
from graphmamba.nn.gps_layer import GPSLayer
from graphmamba.nn.graph_mamba_block import GraphMambaBlock
from graphmamba.nn.graph_mamba_layer import GraphMambaLayer
from graphmamba.nn.graph_mamba_mixer import GraphMambaMixer
from graphmamba.nn.mamba_block import MambaBlock, MambaOptions
from graphmamba.nn.performer import Performer
from graphmamba.nn.plain_layer import PlainLayer

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
