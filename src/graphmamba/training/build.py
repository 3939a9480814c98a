"""The parts of a run that change while it goes on: model, optimiser, and their state."""

import torch
from torch.optim import Optimizer

from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import sync_norms
from graphmamba.training.average import WeightAverage
from graphmamba.training.checkpoint import RunState
from graphmamba.training.experiment import Experiment
from graphmamba.training.identity import identity_of
from graphmamba.training.options import RunOptions
from graphmamba.training.progress import Progress
from graphmamba.training.recipe import OptimizerName, Recipe
from graphmamba.training.schedule import Schedule
from graphmamba.training.team import Team

OPTIMIZERS: dict[OptimizerName, type[torch.optim.AdamW] | type[torch.optim.Adam]] = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
}


def make_model(experiment: Experiment, options: RunOptions, team: Team) -> GraphMamba:
    """Build the model as the options ask: BatchNorm over all processes, on the device, compiled."""
    model = experiment.build(seed=options.seed)
    model.backbone.noise_seed.process = team.rank
    if options.sync_batchnorm and team.world > 1:
        sync_norms(model)
    return model.to(team.device)


def make_average(model: GraphMamba, experiment: Experiment) -> WeightAverage | None:
    """Begin the average of a model that lies on its device; None where the recipe has none."""
    if not experiment.recipe.average:
        return None
    return WeightAverage(model, experiment.recipe.average)


def make_optimizer(
    model: GraphMamba, recipe: Recipe, device: torch.device, is_captured: bool
) -> Optimizer:
    """Make the recipe's optimiser; a captured step needs one that the GPU runs by itself."""
    kind, rate = OPTIMIZERS[recipe.optimizer], recipe.learning_rate
    if not is_captured:
        return kind(model.parameters(), lr=rate, weight_decay=recipe.weight_decay)
    # A captured graph reads the rate where it lies; a number would be part of the graph.
    return kind(
        model.parameters(),
        lr=torch.tensor(rate, device=device),
        weight_decay=recipe.weight_decay,
        fused=True,
        capturable=True,
    )


def make_state(
    experiment: Experiment,
    options: RunOptions,
    model: GraphMamba,
    optimizer: Optimizer,
    store: GraphStore,
    team: Team,
) -> RunState:
    """Put together what is saved, at the beginning of the first epoch."""
    sampler = BatchSampler(
        store.split_ids("train"),
        experiment.recipe.batch_size * options.accumulate,
        options.seed,
        rank=team.rank,
        world=team.world,
    )
    progress = Progress(loss_sum=torch.zeros((), dtype=torch.float64, device=team.device))
    schedule = Schedule(experiment.recipe)
    average = make_average(model, experiment)
    return RunState(
        experiment,
        options,
        model,
        optimizer,
        schedule,
        sampler,
        progress,
        team,
        average,
        identity_of(experiment, store),
    )
