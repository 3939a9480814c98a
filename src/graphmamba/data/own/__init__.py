"""Users' own graphs -> columns and a task: CSV folders, SMILES, `.npz`, PyG `Data`."""

from graphmamba.data.own.arrays import read_npz
from graphmamba.data.own.folder import read_folder
from graphmamba.data.own.labels import Kind, LabelRule
from graphmamba.data.own.open import OwnStore, open_own
from graphmamba.data.own.options import OwnOptions
from graphmamba.data.own.own_data import OwnData
from graphmamba.data.own.pyg import from_graphs
from graphmamba.data.own.smiles import read_smiles_csv

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
