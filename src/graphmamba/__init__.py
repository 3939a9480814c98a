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
    from graphmamba.data.batch import Topology as Topology
    from graphmamba.data.catalog import Features as Features
    from graphmamba.data.catalog import Task as Task
    from graphmamba.data.custom.options import DataOptions as DataOptions
    from graphmamba.data.store import GraphStore as GraphStore
    from graphmamba.nn import GatedGCNConv as GatedGCNConv
    from graphmamba.nn import GraphMambaBlock as GraphMambaBlock
    from graphmamba.nn import GraphMambaLayer as GraphMambaLayer
    from graphmamba.nn.config import EncoderConfig as EncoderConfig
    from graphmamba.nn.config import ModelConfig as ModelConfig
    from graphmamba.nn.graph_mamba import MambaConfig as MambaConfig
    from graphmamba.nn.heads import HeadConfig as HeadConfig
    from graphmamba.nn.model import GraphMamba as GraphMamba
    from graphmamba.ops import causal_conv1d as causal_conv1d
    from graphmamba.ops import selective_scan as selective_scan
    from graphmamba.ordering import OrderPolicy as OrderPolicy
    from graphmamba.training.experiment import Experiment as Experiment
    from graphmamba.training.experiment import RunOptions as RunOptions
    from graphmamba.training.experiment import load_experiment as load_experiment
    from graphmamba.training.fit import fit as fit
    from graphmamba.training.fit import fit_folds as fit_folds
    from graphmamba.training.fit import fit_seeds as fit_seeds
    from graphmamba.training.predict import Predictions as Predictions
    from graphmamba.training.predict import Predictor as Predictor
    from graphmamba.training.predict import load as load
    from graphmamba.training.predict import load_pretrained as load_pretrained

__version__ = "0.1.0"
# Where public names live. They are imported at their first use, so that `graphmamba --help`
# answers at once and one part of the library never waits for the dependencies of another.
_NAMES = {
    "data.batch": ["Topology"],
    "data.catalog": ["Features", "Task"],
    "data.custom.options": ["DataOptions"],
    "data.store": ["GraphStore"],
    "nn": ["GatedGCNConv", "GraphMambaBlock", "GraphMambaLayer"],
    "nn.config": ["EncoderConfig", "ModelConfig"],
    "nn.graph_mamba": ["MambaConfig"],
    "nn.heads": ["HeadConfig"],
    "nn.model": ["GraphMamba"],
    "ops": ["causal_conv1d", "selective_scan"],
    "ordering": ["OrderPolicy"],
    "training.experiment": ["Experiment", "RunOptions", "load_experiment"],
    "training.fit": ["fit", "fit_folds", "fit_seeds"],
    "training.predict": ["Predictions", "Predictor", "load", "load_pretrained"],
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphmamba' has no attribute {name!r}")
    return getattr(import_module(f"graphmamba.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
