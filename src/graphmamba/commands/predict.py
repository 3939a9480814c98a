"""`graphmamba predict`."""

from pathlib import Path
from typing import Any

from graphmamba.commands.printing import say
from graphmamba.commands.source import (
    ALL,
    check_features,
    check_parts,
    graphs_of,
    load_model,
    names_known,
    on_other_data,
    options_of,
    part_asked,
)
from graphmamba.data.custom.csv import FILES
from graphmamba.data.custom.open import read_unlabelled
from graphmamba.data.custom.options import DataSource
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.experiment import DeviceName
from graphmamba.training.predict import BUDGET
from graphmamba.training.predictor import Predictor
from graphmamba.training.run_dir import RunDir


def predict(
    checkpoint: str | None = None,
    *,
    input_: str | None = None,
    output: str = "predictions.csv",
    dataset: str | None = None,
    split: str | None = None,
    pretrained: str | None = None,
    weights: str | None = None,
    device: DeviceName = "auto",
    budget: int = BUDGET,
    std: bool = True,
    data_dir: str | None = None,
) -> None:
    """Write predictions of a trained model to a CSV file, with their std over random node orders.

    Args:
        checkpoint: The directory of a run, or a file of weights.
        input_: Your graphs: a folder of CSV files, an .npz or a .csv of molecules; targets may be
            missing. Default: the test split of the training data.
        output: CSV file to write.
        dataset: Predict this benchmark data set instead.
        split: train, validation, test or all; default: test, and all graphs of an input. Files of
            an input need a `split` for the others.
        pretrained: DATASET or DATASET/MODEL: use weights shipped with the package.
        weights: Directory of such weights; default: $GRAPHMAMBA_WEIGHTS or the package's own.
        device: auto uses a GPU if there is one.
        budget: Most nodes and edges per batch; a smaller one takes less memory.
        std: Compute the column std, which takes further forward passes.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
    """
    from graphmamba.environment import resolve_device
    from graphmamba.training.console import follow
    from graphmamba.training.graphs import open_data
    from graphmamba.training.predict import write_predictions

    part = part_asked(split, input_)
    place = resolve_device(device)
    trained = load_model(checkpoint, pretrained, weights).to(place)
    path = Path(output)
    _check_output(path, trained, input_)
    if input_ is not None and dataset is None:
        found = read_unlabelled(
            input_, options_of(trained), names_known(trained), has_split=part != ALL
        )
        check_features(trained, found.columns, input_)
        store = GraphStore(found.columns)
        ids = graphs_of(store, part, input_)
        names: tuple[Any, ...] = (found.graph_name, found.node_name)
    else:
        experiment = on_other_data(trained, dataset, input_)
        experiment, store = open_data(experiment, Path(data_dir) if data_dir else None)
        if input_ is None and part != ALL:
            check_parts(trained, experiment, store)
        ids = graphs_of(store, part, experiment.dataset_info.title)
        names = _names(experiment.data)
    parts = trained.stream(store, ids, has_std=std, budget=budget)
    rows = write_predictions(path, follow(parts, len(ids)), *names)
    say(f"{rows:,} {'row' if rows == 1 else 'rows'} written to {path}")


def _check_output(path: Path, trained: Predictor, given: str | None) -> None:
    """Reject to write over the graphs that are predicted, or over what training has left."""
    if path.is_dir():
        raise UserError(f"output must be a file, got the folder '{path}'")
    if not path.exists():
        return
    own = trained.experiment.data
    graphs = [Path(place) for place in (given, own and own.path) if place]
    parts = [place / name for place in graphs for name in FILES]
    for file in (*graphs, *parts, trained.path, *RunDir(trained.path.parent).files):
        if file.exists() and path.samefile(file):
            raise UserError(
                f"output must not be a file that is read or that a run wrote, got '{path}'"
            )


def _names(own: DataSource | None) -> tuple[Any, ...]:
    """What the owner of graphs calls them and their nodes; others are numbered."""
    if own is None:
        return ()
    found = read_unlabelled(own.path, own.options)
    return found.graph_name, found.node_name
