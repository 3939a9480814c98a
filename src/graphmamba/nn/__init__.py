"""The models as modules: message passing, global models, layers; the paper's and its baselines."""

from graphmamba.nn.attention import Attention
from graphmamba.nn.bigbird import BigBird
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.gated_gcn import GatedGCN, GatedGCNConv
from graphmamba.nn.gps import GPSLayer, GraphMambaLayer, ResidualLayer
from graphmamba.nn.graph_mamba import GraphMambaBlock, GraphMambaGlobal, MambaBlock, MambaConfig
from graphmamba.nn.message_passing import GCN, GCNE, GINE, SAGE
from graphmamba.nn.model import Backbone, ReverseEdges, VirtualNode
from graphmamba.nn.performer import Performer
from graphmamba.nn.spectral import SpectralConfig, SpectralFilter, SpectralLayer

__all__ = [
    "GCN",
    "GCNE",
    "GINE",
    "SAGE",
    "Attention",
    "Backbone",
    "BigBird",
    "ExphormerStack",
    "GPSLayer",
    "GatedGCN",
    "GatedGCNConv",
    "GraphMambaBlock",
    "GraphMambaGlobal",
    "GraphMambaLayer",
    "MambaBlock",
    "MambaConfig",
    "Performer",
    "ResidualLayer",
    "ReverseEdges",
    "SpectralConfig",
    "SpectralFilter",
    "SpectralLayer",
    "VirtualNode",
]
