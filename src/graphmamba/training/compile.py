"""Decides whether a run uses CUDA graphs and `torch.compile`, and compiles the model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import nn

from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.nn.attention import Attention
from graphmamba.nn.bigbird import BigBird
from graphmamba.nn.choose_operator import has_operator
from graphmamba.nn.model import GraphMamba, build_layers
from graphmamba.nn.performer import Performer
from graphmamba.nn.spectral import SpectralFilter
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.experiment import Experiment, RunOptions

PADDED = Attention, Performer, BigBird, SpectralFilter
LEAST_STEPS, LEAST_OPERATOR_STEPS = 5_000, 200_000
"""Planned steps from which compiling pays on a GPU, where it takes about half a minute. It saves
some 6 ms per step if layers run as modules, and 0.13 ms (encoder and head) if they run as one
operator."""


def decided(
    options: RunOptions, experiment: Experiment, store: GraphStore, team: ProcessGroup
) -> RunOptions:
    """Return the options with `compile` decided; a resumed run keeps the decision."""
    why_not = why_not_captured(options, team.device, team.world, store)
    if options.cuda_graph == "on" and why_not:
        raise UserError(
            f"cuda_graph must be 'auto' or 'off', since a captured step {why_not}, got 'on'"
        )
    if options.compile != "auto":
        return options
    if team.device.type != "cuda":
        return replace(options, compile="off")
    graphs = len(store.split_ids("train"))
    batch = experiment.train.batch_size * options.accumulate_grad_batches * team.world
    steps = experiment.train.epochs * -(-graphs // batch)
    if store.is_transductive and graphs == 1:
        steps *= experiment.train.steps_per_epoch
    with torch.device("meta"):
        layers = build_layers(experiment.model)
    least = LEAST_OPERATOR_STEPS if all(map(has_operator, layers)) else LEAST_STEPS
    return replace(options, compile="on" if steps >= least else "off")


def is_captured(
    options: RunOptions, device: torch.device, processes: int, store: GraphStore | None = None
) -> bool:
    """Whether training steps and evaluation are captured as CUDA graphs."""
    why_not = why_not_captured(options, device, processes, store)
    return options.cuda_graph != "off" and why_not is None


def why_not_captured(
    options: RunOptions, device: torch.device, processes: int, store: GraphStore | None = None
) -> str | None:
    """Why steps cannot be captured as CUDA graphs, as part of a sentence; None if they can."""
    if device.type != "cuda":
        return f"needs a GPU, and the run is on '{device.type}'"
    if options.sync_batchnorm and processes > 1:
        return "cannot wait for the other processes, as sync_batchnorm does"
    if find_spec("triton") is None:
        return "needs Triton, which is not installed"
    if store is not None and store.is_streamed:
        return "makes batches on the GPU, which has no room for the graphs"
    if store is not None and store.is_transductive:
        return "pads graphs, and where nodes or pairs are split it would pad the rows that count"
    return None


def compile_parts(model: GraphMamba) -> None:
    """Mark encoder, layers and head to be compiled at their first call.

    Equal layers share the compiled code. Layers that run as one operator are not compiled, nor is
    attention in padded blocks, whose number depends on the batch.
    """
    for part in model.modules():
        if isinstance(part, PADDED):
            part.forward = torch.compiler.disable(part.forward)  # type: ignore[method-assign]
    for part in _parts(model):
        part.compile(dynamic=True, options={"deterministic": True})


def compile_now(models: Sequence[GraphMamba], warm_up: Callable[[], None]) -> str | None:
    """Compile models before the first step; if that fails, undo it and return the reason.

    Args:
        models: The model, and its moving average if there is one.
        warm_up: Runs the model once in training and in evaluation mode.
    """
    for model in models:
        compile_parts(model)
    try:
        warm_up()
    except Exception as error:  # compilers raise whatever they meet
        for model in models:
            _undo(model)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[0]
    return None


def _parts(model: GraphMamba) -> list[nn.Module]:
    backbone = model.backbone
    layers = [layer for layer in backbone.layers if not has_operator(layer)]
    return [backbone.encoder, *layers, *backbone.virtual_nodes, model.head]


def _undo(model: GraphMamba) -> None:
    for part in model.modules():
        if isinstance(part, PADDED):
            vars(part).pop("forward", None)
    for part in _parts(model):
        part.compile(disable=True)
