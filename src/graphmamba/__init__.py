"""Graph learning in linear time: nodes are ordered, packed and run through a selective scan.

The packages, of which each imports only from those above it:

    ops         tensors in, tensors out: scan, convolution, sums over edges; knows no modules
    data        data sets and your own graphs: stores, batches, transforms
    ordering    scores of the nodes         -> sequences: `order`, `cu_seqlens`
    nn          a batch                     -> predictions: encoders, layers, heads
    training    an experiment               -> checkpoint, results: step, loop, losses, metrics

These may import from all of the above:

    cli, commands                   the command line
    presets, reported               configurations as YAML, and scores reported in papers
    bench, studies                  benchmarks, and the paper's tables and figures

These may be imported anywhere:

    checks, errors, parse           input checks, the error class, parsing
    environment                     machine, versions and commit
    figures, atomic                 figures and atomic writes
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphmamba.data.batch import Topology
    from graphmamba.data.catalog import Features, Task
    from graphmamba.data.custom.options import DataOptions
    from graphmamba.data.store import GraphStore
    from graphmamba.nn import GatedGCNConv, GraphMambaBlock, GraphMambaLayer
    from graphmamba.nn.config import EncoderConfig, ModelConfig
    from graphmamba.nn.graph_mamba import MambaConfig
    from graphmamba.nn.heads import HeadConfig
    from graphmamba.nn.model import GraphMamba
    from graphmamba.ops import causal_conv1d, selective_scan
    from graphmamba.ordering import OrderPolicy
    from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
    from graphmamba.training.fit import fit, fit_folds, fit_seeds
    from graphmamba.training.predict import Predictions
    from graphmamba.training.predictor import Predictor, load, load_pretrained

__version__ = "0.1.0"
__all__ = [
    "DataOptions",
    "EncoderConfig",
    "Experiment",
    "Features",
    "GatedGCNConv",
    "GraphMamba",
    "GraphMambaBlock",
    "GraphMambaLayer",
    "GraphStore",
    "HeadConfig",
    "MambaConfig",
    "ModelConfig",
    "OrderPolicy",
    "Predictions",
    "Predictor",
    "RunOptions",
    "Task",
    "Topology",
    "__version__",
    "causal_conv1d",
    "fit",
    "fit_folds",
    "fit_seeds",
    "load",
    "load_experiment",
    "load_pretrained",
    "selective_scan",
]

# Where each public name lives. It is imported at its first use, so that `graphmamba --help`
# answers at once and one part of the library never waits for the dependencies of another.
_HOMES = {
    "EncoderConfig": "graphmamba.nn.config",
    "Experiment": "graphmamba.training.experiment",
    "Features": "graphmamba.data.catalog",
    "GatedGCNConv": "graphmamba.nn",
    "GraphMamba": "graphmamba.nn.model",
    "GraphMambaBlock": "graphmamba.nn",
    "GraphMambaLayer": "graphmamba.nn",
    "GraphStore": "graphmamba.data.store",
    "HeadConfig": "graphmamba.nn.heads",
    "MambaConfig": "graphmamba.nn.graph_mamba",
    "OrderPolicy": "graphmamba.ordering",
    "DataOptions": "graphmamba.data.custom.options",
    "Predictions": "graphmamba.training.predict",
    "RunOptions": "graphmamba.training.experiment",
    "ModelConfig": "graphmamba.nn.config",
    "Task": "graphmamba.data.catalog",
    "Topology": "graphmamba.data.batch",
    "Predictor": "graphmamba.training.predictor",
    "causal_conv1d": "graphmamba.ops",
    "fit": "graphmamba.training.fit",
    "fit_folds": "graphmamba.training.fit",
    "fit_seeds": "graphmamba.training.fit",
    "load": "graphmamba.training.predictor",
    "load_experiment": "graphmamba.training.experiment",
    "load_pretrained": "graphmamba.training.predictor",
    "selective_scan": "graphmamba.ops",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphmamba' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
