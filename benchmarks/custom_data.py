"""Train the defaults for custom data beside plain baselines, in the same folds: one table.

    PYTHONPATH=src python benchmarks/custom_data.py FOLDER
    PYTHONPATH=src python benchmarks/custom_data.py FOLDER --only cora enzymes/ours --splits 0 1
    PYTHONPATH=src python benchmarks/custom_data.py FOLDER --only tolokers/gcn --device cuda
    PYTHONPATH=src python benchmarks/custom_data.py --table

The first makes all cells that are missing, the second some of them, the third does so on a GPU, the
last writes the table of the record to docs/defaults.md. A cell is a set, a model and a split; it is
written to the record as soon as it is done and never made again, so that the script can be stopped
at any time. Epochs are chosen by validation; the test split is scored once, by the weights of the
best epoch. The folder holds the files as their owners publish them: `cora.npz` (Planetoid),
`minesweeper.npz`, `tolokers.npz`, `ENZYMES.zip` (TUDataset), `delaney-processed.csv`,
`tox21.csv.gz` (MoleculeNet). A machine without RDKit and pandas reads molecules that another one
has prepared:

    PYTHONPATH=src python benchmarks/custom_data.py FOLDER --only tox21 --prepare tox21.npz
    PYTHONPATH=src python benchmarks/custom_data.py --prepared tox21.npz --only tox21/gine
"""

import argparse
import io
import json
import math
import time
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, train_test_split
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GIN, GINEConv, GraphSAGE, global_add_pool, global_mean_pool

from graphmamba.atomic import write_json, write_text
from graphmamba.commands.printing import say
from graphmamba.data.catalog import MOLECULES, Features, Task
from graphmamba.data.custom.labels import LabelRule, number_labels, task_of
from graphmamba.data.custom.options import DataOptions, DataSource
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import DESCRIPTORS, GraphColumns
from graphmamba.environment import describe, resolve_device
from graphmamba.nn.config import EncoderConfig
from graphmamba.nn.encoders import GraphEncoder, Standardize, Statistics
from graphmamba.training.defaults import Size, default_experiment, is_bag_of_words
from graphmamba.training.experiment import OptimConfig, TrainConfig
from graphmamba.training.fit import OPTIMIZERS
from graphmamba.training.schedule import Schedule, set_rate

HERE = Path(__file__).parent
RECORD = HERE / "results" / "custom_data_cpu.json"
PAGE = HERE.parent / "docs" / "defaults.md"
SPLIT_OF = {"train": 0, "validation": 1, "test": 2}
NO_SPLIT = 3
SMALL_SET = 2500
"""Graphs up to which baselines take small batches and many epochs."""
STEPS_PER_EPOCH = 5
"""Steps on a single graph between two evaluations."""


Kind = Literal["classes", "binary", "regression", "multi-label"]


@dataclass(frozen=True)
class Problem:
    """A set with one of its splits."""

    columns: GraphColumns
    """Graphs; `node_split` among the nodes where it is one graph, `split` else."""
    features: Features
    task: Task
    kind: Kind
    """`classes`, `binary` (two classes, scored by their order), `regression` or `multi-label`."""
    smiles: tuple[str, ...] = ()
    """Of molecules."""

    @property
    def is_single(self) -> bool:
        """Whether it is one graph, whose nodes are split."""
        return "node_split" in self.columns.nodes

    @property
    def metric(self) -> str:
        """What is chosen by and reported."""
        names = {"classes": "accuracy", "regression": "RMSE"}
        return names.get(self.kind, "ROC-AUC")

    @property
    def split(self) -> Tensor:
        """Split of each graph."""
        assert self.columns.split is not None
        return self.columns.split


class Scores(NamedTuple):
    """Of the weights with the best validation score."""

    validation: float
    test: float
    epoch: int
    epochs: int


# ---- sets -------------------------------------------------------------------------------------


@cache
def read_npz(path: Path) -> dict[str, Tensor]:
    """Read all arrays."""
    with np.load(path) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}


def one_graph(x: Tensor, edges: Tensor, y: Tensor, masks: Iterable[Tensor], kind: Kind) -> Problem:
    """Make the problem of a single graph whose nodes are split by masks."""
    found = from_graphs([Data(x=x.float(), edge_index=edges.long(), y=y.long())], level="node")
    split = torch.full((len(y),), NO_SPLIT)
    for number, mask in enumerate(masks):
        split[mask.bool()] = number
    nodes = found.columns.nodes | {"node_split": split}
    columns = replace(found.columns, nodes=nodes, split=torch.tensor([0]))
    return Problem(columns, found.features, found.task, kind)


def cora(folder: Path, _: int) -> Problem:
    """Planetoid's public split, the same for each seed."""
    arrays = read_npz(folder / "cora.npz")
    masks = [arrays[f"{name}_mask"] for name in ("train", "val", "test")]
    return one_graph(arrays["x"], arrays["edge_index"], arrays["y"], masks, "classes")


def heterophilous(name: str) -> Callable[[Path, int], Problem]:
    """Split 0 of a set of yandex-research/heterophilous-graphs; edges are written once."""

    def read(folder: Path, _: int) -> Problem:
        arrays = read_npz(folder / f"{name}.npz")
        once = arrays["edges"].T
        both = torch.cat([once, once.flip(0)], dim=1)
        masks = [arrays[f"{part}_masks"][0] for part in ("train", "val", "test")]
        return one_graph(arrays["node_features"], both, arrays["node_labels"], masks, "binary")

    return read


@cache
def read_enzymes(path: Path) -> tuple[GraphColumns, Features, Task]:
    """Read TUDataset's text files."""
    with zipfile.ZipFile(path) as files:

        def table(name: str) -> Tensor:
            text = files.read(f"ENZYMES/ENZYMES_{name}.txt").decode()
            return torch.from_numpy(np.loadtxt(io.StringIO(text), delimiter=",", ndmin=2))

        graph = table("graph_indicator").long()[:, 0] - 1
        pairs = table("A").long().T - 1
        kinds = functional.one_hot(table("node_labels").long()[:, 0] - 1)
        x = torch.cat([kinds, table("node_attributes")], dim=1).float()
        y = table("graph_labels").long()[:, 0] - 1
    first = torch.searchsorted(graph, torch.arange(len(y) + 1))
    graphs = []
    for number in range(len(y)):
        begin, end = int(first[number]), int(first[number + 1])
        own = pairs[:, graph[pairs[0]] == number] - begin
        graphs.append(Data(x=x[begin:end], edge_index=own, y=y[number : number + 1]))
    found = from_graphs(graphs)
    return found.columns, found.features, found.task


def enzymes(folder: Path, fold: int) -> Problem:
    """One of ten stratified folds is for test, a ninth of the others for validation."""
    columns, features, task = read_enzymes(folder / "ENZYMES.zip")
    y = columns.graphs["y"].numpy()
    folds = StratifiedKFold(10, shuffle=True, random_state=0).split(y, y)
    rest, test = [*folds][fold]
    train, validation = train_test_split(rest, test_size=1 / 9, random_state=fold, stratify=y[rest])
    split = split_of(len(y), train, validation, test)
    return Problem(replace(columns, split=split), features, task, "classes")


def split_of(rows: int, *parts: Any) -> Tensor:
    """Number the split of each graph."""
    split = torch.full((rows,), -1)
    for number, part in enumerate(parts):
        split[torch.as_tensor(part)] = number
    assert (split >= 0).all()
    return split


@cache
def read_molecules(path: Path, targets: tuple[str, ...]) -> tuple[GraphColumns, Task, list[str]]:
    """Read a CSV of molecules; rows that RDKit does not parse are left out."""
    import pandas as pd

    from graphmamba.data.datasets.molecules import descriptors_of, import_rdkit, read_smiles

    chem = import_rdkit()
    table = pd.read_csv(path)
    quiet = chem.rdBase.BlockLogs()
    molecules = [chem.MolFromSmiles(text) for text in table["smiles"]]
    del quiet
    is_read = [each is not None and each.GetNumAtoms() > 0 for each in molecules]
    table = table[is_read]
    names = targets or tuple(set(table.columns) - {"smiles", "mol_id"})
    y = torch.from_numpy(table[sorted(names)].to_numpy(dtype=np.float32, copy=True))
    smiles = table["smiles"].tolist()
    described = {"y": y, DESCRIPTORS: descriptors_of(smiles)}
    return replace(read_smiles(smiles), graphs=described), task_of_molecules(y), smiles


def task_of_molecules(y: Tensor) -> Task:
    """One target is a number, several are answers of yes or no."""
    rule = LabelRule(task="multi-label" if y.shape[1] > 1 else "regression")
    return task_of("graph", number_labels(y, rule, "row {}".format))


def molecules(file: str, targets: tuple[str, ...], kind: Kind) -> Callable[[Path, int], Problem]:
    """Random splits: 80, 10 and 10 %."""

    def read(folder: Path, seed: int) -> Problem:
        columns, task, smiles = read_molecules(folder / file, targets)
        places = np.random.default_rng(seed).permutation(len(smiles))
        parts = np.split(places, [int(0.8 * len(places)), int(0.9 * len(places))])
        split = split_of(len(places), *parts)
        return Problem(
            replace(columns, split=split), features_of(columns), task, kind, tuple(smiles)
        )

    return read


def features_of(columns: GraphColumns) -> Features:
    """Atoms, bonds and descriptors."""
    return replace(MOLECULES, graph_columns=columns.graphs[DESCRIPTORS].shape[1])


def write_prepared(path: Path, problems: Sequence[Problem]) -> None:
    """Write the molecules of a set with all its splits, for `read_prepared`."""
    columns = problems[0].columns
    tensors = {
        "node_ptr": columns.node_ptr, "edge_ptr": columns.edge_ptr,
        "edge_index": columns.edge_index, "x": columns.nodes["x"],
        "edge_attr": columns.edges["edge_attr"], **columns.graphs,
        "splits": torch.stack([problem.split for problem in problems]),
    }  # fmt: skip
    arrays: dict[str, Any] = {name: each.numpy() for name, each in tensors.items()}
    arrays |= {"smiles": problems[0].smiles, "kind": problems[0].kind}
    np.savez_compressed(path, **arrays)


def read_prepared(path: Path, split: int) -> Problem:
    """Read the molecules of a set as `write_prepared` wrote them."""
    with np.load(path) as file:
        kind, smiles = file["kind"].item(), tuple(file["smiles"].tolist())
        names = set(file.files) - {"kind", "smiles"}
        arrays = {name: torch.from_numpy(file[name]) for name in names}
    columns = GraphColumns(
        arrays["node_ptr"], arrays["edge_ptr"], arrays["edge_index"],
        {"x": arrays["x"]}, {"edge_attr": arrays["edge_attr"]},
        {"y": arrays["y"], DESCRIPTORS: arrays[DESCRIPTORS]}, split=arrays["splits"][split],
    )  # fmt: skip
    task = task_of_molecules(arrays["y"])
    return Problem(columns, features_of(columns), task, kind, smiles)


class Set(NamedTuple):
    """How a set is read, in how many splits it is trained, beside which baselines."""

    title: str
    read: Callable[[Path, int], Problem]
    splits: int
    baselines: tuple[str, ...]


ESOL_TARGET = "measured log solubility in mols per litre"
ESOL = molecules("delaney-processed.csv", (ESOL_TARGET,), "regression")
TOX21 = molecules("tox21.csv.gz", (), "multi-label")
NODE_BASELINES, MOLECULE_BASELINES = ("gcn", "sage"), ("gine", "lightgbm")
SETS: dict[str, Set] = {
    "cora": Set("Cora, public split, 5 seeds", cora, 5, NODE_BASELINES),
    "esol": Set("ESOL, 5 random splits", ESOL, 5, MOLECULE_BASELINES),
    "enzymes": Set("ENZYMES, 10 folds", enzymes, 10, ("gin", "sage")),
    "minesweeper": Set(
        "minesweeper, split 0, 3 seeds", heterophilous("minesweeper"), 3, NODE_BASELINES
    ),
    "tolokers": Set("tolokers, split 0, 3 seeds", heterophilous("tolokers"), 3, NODE_BASELINES),
    "tox21": Set("Tox21, 3 random splits", TOX21, 3, MOLECULE_BASELINES),
}


# ---- one loop for all that is trained by gradients ----------------------------------------------


def loss_of(problem: Problem, out: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy, cross-entropy of each answer that is known, or squared error."""
    if problem.task.classes:
        return functional.cross_entropy(out, y)
    is_known = ~y.isnan()
    if problem.kind == "regression":
        return functional.mse_loss(out[is_known], y[is_known])
    return functional.binary_cross_entropy_with_logits(out[is_known], y[is_known])


def score_of(problem: Problem, out: Tensor, y: Tensor) -> float:
    """Accuracy, ROC-AUC (mean over the answers that have both values) or RMSE."""
    if problem.kind == "classes":
        return float((out.argmax(dim=1) == y).double().mean())
    if problem.kind == "binary":
        return float(roc_auc_score(y, out[:, 1] - out[:, 0]))
    if problem.kind == "regression":
        return float((out - y).double().square().mean().sqrt())
    areas = []
    for column in range(y.shape[1]):
        known = ~y[:, column].isnan()
        if len(y[known, column].unique()) > 1:
            areas.append(roc_auc_score(y[known, column], out[known, column]))
    return float(np.mean(areas))


def learn(
    problem: Problem,
    store: GraphStore,
    model: nn.Module,
    optim: OptimConfig,
    train: TrainConfig,
    seed: int,
    device: torch.device,
) -> Scores:
    """Train, score validation after each epoch, and test once with the best weights."""
    y_mean, y_std = torch.zeros((), device=device), torch.ones((), device=device)
    if problem.kind == "regression":
        known = problem.columns.graphs["y"][problem.split == 0].to(device)
        y_mean, y_std = known.nanmean(dim=0), known[~known.isnan()].std()
    store, model = store.to(device), model.to(device)
    parameters = [*model.parameters()]
    optimizer = OPTIMIZERS[optim.optimizer](
        parameters, lr=optim.lr, weight_decay=optim.weight_decay
    )
    schedule = Schedule(optim, train.epochs)
    ids = store.split_ids("train")
    whole = store.batch(torch.tensor([0])) if problem.is_single else None
    ids = ids[:1].repeat(STEPS_PER_EPOCH) if problem.is_single else ids
    sampler = BatchSampler(ids, 1 if problem.is_single else train.batch_size, seed)

    def rows_of(split: str, out: Tensor, batch: Data) -> tuple[Tensor, Tensor]:
        if not problem.is_single:
            return out, batch.y
        kept = batch.node_split == SPLIT_OF[split]
        return out[kept], batch.y[kept]

    def score(split: str) -> float:
        model.eval()
        with torch.no_grad():
            parts = []
            for chosen in (
                ids[:1].split(1) if problem.is_single else store.split_ids(split).split(256)
            ):
                batch = whole if whole is not None else store.batch(chosen)
                parts.append(rows_of(split, model(batch) * y_std + y_mean, batch))
        return score_of(problem, *(torch.cat(each).cpu() for each in zip(*parts, strict=True)))

    sign = -1 if problem.kind == "regression" else 1
    best, best_epoch, kept = -math.inf, -1, {}
    for epoch in range(train.epochs):
        model.train()
        steps = len(sampler)
        for step, chosen in enumerate(sampler):
            batch = whole if whole is not None else store.batch(chosen)
            set_rate(optimizer, schedule.rate(epoch, step, steps))
            out, y = rows_of("train", model(batch), batch)
            loss = loss_of(problem, out, (y - y_mean) / y_std if sign < 0 else y)
            optimizer.zero_grad()
            loss.backward()
            if optim.max_grad_norm:
                nn.utils.clip_grad_norm_(parameters, optim.max_grad_norm)
            optimizer.step()
        value = sign * score("validation")
        if value > best:
            best, best_epoch = value, epoch
            kept = {name: each.clone() for name, each in model.state_dict().items()}
        if train.early_stopping and epoch - best_epoch >= train.early_stopping:
            break
    model.load_state_dict(kept)
    return Scores(sign * best, score("test"), best_epoch, epoch + 1)


# ---- models -------------------------------------------------------------------------------------


def ours(
    problem: Problem,
    seed: int,
    overrides: Mapping[str, object],
    size: Size,
    device: torch.device,
) -> Scores:
    """Train what the library's defaults choose; no set is named to them."""
    store = GraphStore(problem.columns)
    source = DataSource.of(DataOptions()).described(problem.features, problem.task, ())
    experiment = default_experiment(source, store, size, overrides)
    say(experiment.chosen)
    model = experiment.build(seed)
    model.measure_inputs(store)
    return learn(problem, store, model, experiment.optim, experiment.train, seed, device)


class GINE(GIN):
    """PyG's stack, of layers that read edges."""

    supports_edge_attr = True

    def init_conv(self, in_channels: int, out_channels: int, **_: Any) -> GINEConv:
        """Make one layer."""
        return GINEConv(nn.Sequential(
            nn.Linear(in_channels, out_channels), nn.BatchNorm1d(out_channels), nn.ReLU(),
            nn.Linear(out_channels, out_channels),
        ))  # fmt: skip


class NodeBaseline(nn.Module):
    """A stack of PyTorch Geometric on the features of a graph's nodes, which are dropped too."""

    def __init__(self, problem: Problem, name: str, channels: int, layers: int, **options: Any):
        super().__init__()
        x = problem.columns.nodes["x"]
        self.has_words, self.dropout = is_bag_of_words(x), options["dropout"]
        self.scaling = Standardize(Statistics((0.0,) * x.shape[1], (1.0,) * x.shape[1]))
        self.scaling.measure(x)
        kinds = {"gcn": GCN, "sage": GraphSAGE}
        outputs = problem.task.outputs
        self.layers = kinds[name](x.shape[1], channels, layers, outputs, **options)

    def forward(self, batch: Data) -> Tensor:
        """Predict a row for each node; bags of words are divided by their sums."""
        x = functional.normalize(batch.x, p=1.0) if self.has_words else self.scaling(batch.x)
        x = functional.dropout(x, self.dropout, self.training) if self.has_words else x
        out: Tensor = self.layers(x, batch.edge_index)
        return out


class GraphBaseline(nn.Module):
    """A stack of PyTorch Geometric between the encoder that ours has and a head."""

    def __init__(self, problem: Problem, name: str, channels: int, layers: int, **options: Any):
        super().__init__()
        config = EncoderConfig(normalize_inputs="train", has_edges=name == "gine")
        self.name = name
        self.encoder = GraphEncoder(problem.features, channels, config)
        store = GraphStore(problem.columns)
        self.encoder.measure_inputs(store.batch(store.split_ids("train")))
        kinds = {"sage": GraphSAGE, "gin": GIN, "gine": GINE}
        self.layers = kinds[name](channels, channels, layers, channels, **options)
        self.pool = global_mean_pool if name == "sage" else global_add_pool
        self.head = nn.Sequential(
            nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, problem.task.outputs)
        )

    def forward(self, batch: Data) -> Tensor:
        """Predict a row for each graph."""
        encoded = self.encoder(batch)
        edges = {"edge_attr": encoded.e} if self.name == "gine" else {}
        x = self.layers(encoded.x, batch.edge_index, **edges)
        out: Tensor = self.head(self.pool(x, batch.batch))
        return out


class Recipe(NamedTuple):
    """How a baseline is trained; of two, validation chooses."""

    channels: int
    layers: int
    options: dict[str, Any]
    optim: OptimConfig
    train: TrainConfig


def recipes(problem: Problem) -> list[Recipe]:
    """Usual settings of a baseline."""
    if not problem.is_single:
        plain = {"dropout": 0.1, "norm": "batch_norm"}
        train = TrainConfig(batch_size=32, epochs=100, early_stopping=25)
        if problem.split.numel() >= SMALL_SET:
            train = TrainConfig(batch_size=64, epochs=40, early_stopping=10)
        return [Recipe(64, 4, plain, OptimConfig(lr=1e-3, weight_decay=1e-4, warmup=2), train)]
    train = TrainConfig(epochs=80, early_stopping=40)
    kipf = OptimConfig(
        lr=1e-2, weight_decay=5e-4, optimizer="adam", schedule="constant", max_grad_norm=0.0
    )
    deep = OptimConfig(lr=3e-3, weight_decay=1e-4, schedule="constant", max_grad_norm=0.0)
    return [
        Recipe(64, 2, {"dropout": 0.5}, kipf, train),
        Recipe(64, 4, {"dropout": 0.2, "norm": "batch_norm"}, deep, train),
    ]


def baseline(
    name: str, problem: Problem, seed: int, epochs: int | None, device: torch.device
) -> tuple[Scores, Recipe]:
    """Train a baseline by each of its recipes; the best validation score counts."""
    found: list[tuple[Scores, Recipe]] = []
    for usual in recipes(problem):
        train = replace(usual.train, epochs=epochs) if epochs else usual.train
        recipe = usual._replace(train=train)
        torch.manual_seed(seed)
        store = GraphStore(problem.columns)
        kind = NodeBaseline if problem.is_single else GraphBaseline
        model = kind(problem, name, recipe.channels, recipe.layers, **recipe.options)
        scores = learn(problem, store, model, recipe.optim, recipe.train, seed, device)
        found.append((scores, recipe))
    sign = -1 if problem.kind == "regression" else 1
    return max(found, key=lambda each: sign * each[0].validation)


def fingerprints(smiles: Iterable[str]) -> np.ndarray:
    """ECFP of 2,048 bits and radius 2, beside all descriptors of RDKit."""
    from rdkit.Chem import Descriptors, rdFingerprintGenerator

    from graphmamba.data.datasets.molecules import import_rdkit

    chem = import_rdkit()
    generator = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=2048)
    quiet = chem.rdBase.BlockLogs()
    rows: list[np.ndarray] = []
    for text in smiles:
        molecule = chem.MolFromSmiles(text)
        bits = generator.GetFingerprintAsNumPy(molecule).astype(np.float32)
        numbers = [function(molecule) for _, function in Descriptors.descList]
        rows.append(np.concatenate([bits, np.array(numbers, dtype=np.float32)]))
    del quiet
    return np.nan_to_num(np.stack(rows), posinf=0, neginf=0)


def lightgbm(problem: Problem, seed: int) -> tuple[Scores, dict[str, object]]:
    """Boosted trees, one ensemble for each target, stopped by validation."""
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    options: dict[str, Any] = {
        "n_estimators": 2000, "learning_rate": 0.05, "num_leaves": 31, "subsample": 0.8,
        "subsample_freq": 1, "colsample_bytree": 0.3, "n_jobs": 1, "verbose": -1,
        "random_state": seed,
    }  # fmt: skip
    inputs = fingerprints(problem.smiles)
    y, split = problem.columns.graphs["y"].numpy(), problem.split.numpy()
    predicted = np.full(y.shape, np.nan, dtype=np.float32)
    kind = LGBMRegressor if problem.kind == "regression" else LGBMClassifier
    metric = "rmse" if problem.kind == "regression" else "auc"
    rounds = []
    for column in range(y.shape[1]):
        has_label = ~np.isnan(y[:, column])
        train, validation = (has_label & (split == number) for number in (0, 1))
        model = kind(**options).fit(
            inputs[train], y[train, column],
            eval_set=[(inputs[validation], y[validation, column])], eval_metric=metric,
            callbacks=[early_stopping(100, verbose=False)],
        )  # fmt: skip
        rounds.append(model.best_iteration_)
        predicted[:, column] = (
            model.predict(inputs)
            if metric == "rmse"
            else np.asarray(model.predict_proba(inputs))[:, 1]
        )
    tensors = torch.from_numpy(predicted), torch.from_numpy(y)
    validation_score, test_score = (
        score_of(problem, *(each[split == part] for each in tensors)) for part in (1, 2)
    )
    return Scores(validation_score, test_score, max(rounds), max(rounds)), options


# ---- the record and the table -------------------------------------------------------------------


def make_cell(
    problem: Problem, model: str, split: int, given: argparse.Namespace
) -> dict[str, object]:
    """Train one cell."""
    device = resolve_device("cpu" if model == "lightgbm" else given.device)
    torch.manual_seed(split)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    config: object
    if model == "ours":
        pairs = (entry.partition("=") for entry in given.set)
        overrides = {key: json.loads(value) for key, _, value in pairs}
        overrides |= {"train.epochs": given.epochs} if given.epochs else {}
        scores = ours(problem, split, overrides, given.size, device)
        config = {"size": given.size, **overrides}
    elif model == "lightgbm":
        scores, config = lightgbm(problem, split)
    else:
        scores, recipe = baseline(model, problem, split, given.epochs, device)
        config = {
            "channels": recipe.channels, "layers": recipe.layers, **recipe.options,
            "optim": asdict(recipe.optim), "train": asdict(recipe.train),
        }  # fmt: skip
    return {
        "metric": problem.metric, **scores._asdict(), "seed": split, "config": config,
        "seconds": round(time.perf_counter() - begin, 1),
        "cpu_seconds": round(time.process_time() - begin_cpu, 1),
        "environment": describe(device, given.commit),
    }  # fmt: skip


def read_record(path: Path) -> dict[str, Any]:
    """Read the cells that are done."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def table(record: Mapping[str, Any]) -> str:
    """Write the record as a table: means and standard deviations of the test scores."""
    rows = [
        "| set | metric | ours | CPU seconds a run | baselines in the same splits |",
        "|---|---|---|---|---|",
    ]
    for name, each in SETS.items():
        cells = {
            model: [record[key] for key in sorted(record) if key.startswith(f"{name}/{model}/")]
            for model in ("ours", *each.baselines)
        }
        metric = next((cell["metric"] for own in cells.values() for cell in own), "")
        seconds = [cell["cpu_seconds"] for cell in cells["ours"]]
        others = [
            f"{TITLES[model]}{_mark(cells[model])} {_mean(cells[model], each.splits)}"
            for model in each.baselines
        ]
        rows.append(
            f"| {each.title} | {metric} | {_mean(cells['ours'], each.splits)} | "
            f"{f'{np.mean(seconds):.0f}' if seconds else ''} | {', '.join(others)} |"
        )
    return "\n".join(rows) + "\n"


TITLES = {"gcn": "GCN", "sage": "SAGE", "gin": "GIN", "gine": "GINE", "lightgbm": "LightGBM"}


def _mark(cells: list[dict[str, Any]]) -> str:
    """Point out what was trained on a GPU: only a CPU has a number of threads."""
    return " (on a GPU)" if any(not cell["environment"]["threads"] for cell in cells) else ""


def _mean(cells: list[dict[str, Any]], wanted: int) -> str:
    if not cells:
        return "not run"
    tests = [cell["test"] for cell in cells]
    told = f"{np.mean(tests):.3f}" + (f" ± {np.std(tests, ddof=1):.3f}" if len(tests) > 1 else "")
    return told if len(tests) == wanted else f"{told} ({len(tests)} of {wanted})"


BEGIN, END = "<!-- custom_data: begin -->\n", "<!-- custom_data: end -->\n"


def write_table(record: Mapping[str, Any], page: Path) -> None:
    """Put the table between its marks on the page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    write_text(page, before + BEGIN + table(record) + END + rest.partition(END)[2])


def main() -> None:
    """Make the cells that are missing, or the table, or a file of prepared molecules."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("../shared/data/own"))
    parser.add_argument("--only", nargs="+", default=[], help="SET, SET/MODEL, in this order")
    parser.add_argument("--splits", nargs="+", type=int)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or auto; LightGBM uses a CPU")
    parser.add_argument("--epochs", type=int, help="at most; for a trial")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--size", default="auto")
    parser.add_argument("--set", nargs="+", default=[], help="KEY=VALUE of the experiment")
    parser.add_argument("--commit", help="of a copy without its history")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--prepare", type=Path, help=".npz to write the set of --only to")
    parser.add_argument("--prepared", type=Path, help=".npz to read the set of --only from")
    given = parser.parse_args()
    if (given.prepare or given.prepared) and len(given.only) != 1:
        parser.error("--prepare and --prepared need the name of one set, such as --only tox21")
    if given.table:
        write_table(read_record(given.record), PAGE)
        return
    if given.prepare:
        chosen = SETS[given.only[0]]
        problems = [chosen.read(given.folder, split) for split in range(chosen.splits)]
        write_prepared(given.prepare, problems)
        return
    for word in given.only or SETS:
        name, _, model = word.partition("/")
        for each in [model] if model else ["ours", *SETS[name].baselines]:
            for split in given.splits or range(SETS[name].splits):
                key = f"{name}/{each}/{split}"
                if key in read_record(given.record):
                    continue
                problem = (
                    read_prepared(given.prepared, split)
                    if given.prepared
                    else SETS[name].read(given.folder, split)
                )
                cell = make_cell(problem, each, split, given)
                write_json(given.record, read_record(given.record) | {key: cell})
                say(
                    f"{key}: validation {cell['validation']:.4f}, test {cell['test']:.4f}, "
                    f"epoch {cell['epoch']} of {cell['epochs']}, {cell['seconds']} s"
                )


if __name__ == "__main__":
    main()
