"""Custom graphs -> columns and a task: CSV folders, SMILES, `.npz`, PyG `Data`."""

from graphmamba.data.custom.csv import read_folder
from graphmamba.data.custom.labels import Kind, LabelRule, OwnData
from graphmamba.data.custom.npz import read_npz
from graphmamba.data.custom.open import OwnStore, open_own
from graphmamba.data.custom.options import OwnOptions
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.custom.smiles import read_smiles_csv

__all__ = [
    "Kind",
    "LabelRule",
    "OwnData",
    "OwnOptions",
    "OwnStore",
    "from_graphs",
    "open_own",
    "read_folder",
    "read_npz",
    "read_smiles_csv",
]
