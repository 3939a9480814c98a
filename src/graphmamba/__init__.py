"""Learning on graphs in linear time: nodes are lined up, packed and run through a selective scan.

The folders, read from top to bottom, are the path of a batch:

    data      a name or files             -> graphs
    encode    graphs                      -> node rows, edge rows
    order     scores of the nodes         -> sequences: `order`, `cu_seqlens`
    pack      rows and an order           -> rows as the sequences visit them, and back
    scan      packed rows, `cu_seqlens`   -> packed rows; tensors only, knows no graphs
    stack     rows, edges                 -> rows: local and global layers
    task      rows                        -> prediction, loss, score
    train     an experiment               -> checkpoint, results

Imports point up this listing only. Outside it, and seeing everything, stand

    cli, entries, commands, show    what a user types, and what is shown
    config, configs, published      experiments, and scores that others report
    bench, studies                  measurements, and what is made of them

and what may be used anywhere:

    checks, errors, parse           what is refused, and how it is told
    environment                     machine, versions and commit
    figures, whole_files            what is written
    fusing, operators               when kernels run, and how PyTorch sees them
    kernel_sizes, line_sums         what their launchers share
    compiled                        functions of Numba, and how long they are kept
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphmamba.config import load_experiment
    from graphmamba.data.catalog import Features, Task
    from graphmamba.data.custom.options import OwnOptions
    from graphmamba.data.store import GraphStore
    from graphmamba.data.topology import Topology
    from graphmamba.encode.config import EncoderConfig
    from graphmamba.order import OrderPolicy
    from graphmamba.scan import causal_conv1d, selective_scan
    from graphmamba.stack import GatedGCNConv, GraphMambaBlock, GraphMambaLayer
    from graphmamba.stack.config import StackConfig
    from graphmamba.stack.mamba_block import MambaOptions
    from graphmamba.task.heads import HeadConfig
    from graphmamba.task.model import GraphMamba
    from graphmamba.train.experiment import Experiment
    from graphmamba.train.fit import fit
    from graphmamba.train.fit_seeds import fit_seeds
    from graphmamba.train.options import RunOptions
    from graphmamba.train.own_graphs import take_graphs
    from graphmamba.train.predictions import Predictions
    from graphmamba.train.pretrained import load_pretrained
    from graphmamba.train.trained import Trained, load

__version__ = "0.1.0"
__all__ = [
    "EncoderConfig",
    "Experiment",
    "Features",
    "GatedGCNConv",
    "GraphMamba",
    "GraphMambaBlock",
    "GraphMambaLayer",
    "GraphStore",
    "HeadConfig",
    "MambaOptions",
    "OrderPolicy",
    "OwnOptions",
    "Predictions",
    "RunOptions",
    "StackConfig",
    "Task",
    "Topology",
    "Trained",
    "__version__",
    "causal_conv1d",
    "fit",
    "fit_seeds",
    "load",
    "load_experiment",
    "load_pretrained",
    "selective_scan",
    "take_graphs",
]

# Where each public name lives. It is imported at its first use, so that `graphmamba --help`
# answers at once and one part of the library never waits for the dependencies of another.
_HOMES = {
    "EncoderConfig": "graphmamba.encode.config",
    "Experiment": "graphmamba.train.experiment",
    "Features": "graphmamba.data.catalog",
    "GatedGCNConv": "graphmamba.stack",
    "GraphMamba": "graphmamba.task.model",
    "GraphMambaBlock": "graphmamba.stack",
    "GraphMambaLayer": "graphmamba.stack",
    "GraphStore": "graphmamba.data.store",
    "HeadConfig": "graphmamba.task.heads",
    "MambaOptions": "graphmamba.stack.mamba_block",
    "OrderPolicy": "graphmamba.order",
    "OwnOptions": "graphmamba.data.custom.options",
    "Predictions": "graphmamba.train.predictions",
    "RunOptions": "graphmamba.train.options",
    "StackConfig": "graphmamba.stack.config",
    "Task": "graphmamba.data.catalog",
    "Topology": "graphmamba.data.topology",
    "Trained": "graphmamba.train.trained",
    "causal_conv1d": "graphmamba.scan",
    "fit": "graphmamba.train.fit",
    "fit_seeds": "graphmamba.train.fit_seeds",
    "load": "graphmamba.train.trained",
    "load_experiment": "graphmamba.config",
    "load_pretrained": "graphmamba.train.pretrained",
    "selective_scan": "graphmamba.scan",
    "take_graphs": "graphmamba.train.own_graphs",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphmamba' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
