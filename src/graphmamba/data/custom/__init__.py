"""Custom graphs -> columns and a task: CSV folders, SMILES, `.npz`, PyG `Data`."""

from graphmamba.data.catalog import TaskKind
from graphmamba.data.custom.csv import read_folder
from graphmamba.data.custom.labels import CustomData, LabelRule
from graphmamba.data.custom.npz import read_npz
from graphmamba.data.custom.open import CustomStore, open_custom
from graphmamba.data.custom.options import DataOptions
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.custom.smiles import read_smiles_csv

__all__ = [
    "CustomData",
    "CustomStore",
    "DataOptions",
    "LabelRule",
    "TaskKind",
    "from_graphs",
    "open_custom",
    "read_folder",
    "read_npz",
    "read_smiles_csv",
]
