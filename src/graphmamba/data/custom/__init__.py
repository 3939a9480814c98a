"""Readers of custom graphs: tables, SMILES, `.npz`, TUDatasets, GraphML, networkx, PyG."""

from graphmamba.data.catalog import TaskKind
from graphmamba.data.custom.csv import read_folder
from graphmamba.data.custom.labels import CustomData, CustomGraphs, LabelRule
from graphmamba.data.custom.networkx import from_networkx
from graphmamba.data.custom.npz import read_npz
from graphmamba.data.custom.open import CustomStore, open_custom
from graphmamba.data.custom.options import DataOptions
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.custom.smiles import read_smiles_csv
from graphmamba.data.custom.tu import read_tu

__all__ = [
    "CustomData",
    "CustomGraphs",
    "CustomStore",
    "DataOptions",
    "LabelRule",
    "TaskKind",
    "from_graphs",
    "from_networkx",
    "open_custom",
    "read_folder",
    "read_npz",
    "read_smiles_csv",
    "read_tu",
]
