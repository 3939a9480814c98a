"""`graphmamba predict`."""

from collections.abc import Iterator
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
from graphmamba.data.custom.csv import FILES, table_in
from graphmamba.data.custom.open import Unlabelled, read_unlabelled
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.experiment import DeviceName
from graphmamba.training.predict import BUDGET, Predictions, Predictor
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
        input_: Your graphs: a folder or file, as for `graphmamba train`; targets may be missing.
            Default: the test split of the training data.
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
    from graphmamba.training.graphs import names_in, open_data
    from graphmamba.training.predict import write_predictions
    from graphmamba.training.progress import bar

    part = part_asked(split, input_)
    place = resolve_device(device)
    trained = load_model(checkpoint, pretrained, weights).to(place)
    path = Path(output)
    named: Unlabelled | None
    _check_output(path, trained, input_)
    if input_ is not None and dataset is None:
        named = read_unlabelled(
            input_, options_of(trained), names_known(trained), has_split=part != ALL
        )
        check_features(trained, named.columns, input_)
        store = GraphStore(named.columns)
        ids = graphs_of(store, part, input_)
    else:
        experiment = on_other_data(trained, dataset, input_)
        experiment, store = open_data(experiment, Path(data_dir) if data_dir else None)
        if input_ is None and part != ALL:
            check_parts(trained, experiment, store)
        ids = graphs_of(store, part, experiment.dataset_info.title)
        named = names_in(experiment)
    names: dict[str, Any] = {}
    if named is not None:
        names = {"graph_name": named.graph_name, "node_name": named.node_name}
    # of a split nobody expects the rows of the file
    skipped = [each.row for each in named.skipped] if named and part == ALL else []
    with bar("predicting") as tell:

        def followed() -> Iterator[Predictions]:
            done = 0
            for part in trained.stream(store, ids, has_std=std, budget=budget):
                yield part
                done += len(part.graph.unique())
                tell(done, len(ids))

        rows = write_predictions(path, followed(), skipped=skipped, **names)
    told = f", {len(skipped):,} of them empty: RDKit rejects their SMILES" if skipped else ""
    say(f"{rows:,} {'row' if rows == 1 else 'rows'} written to {path}{told}")


def _check_output(path: Path, trained: Predictor, given: str | None) -> None:
    """Reject to write over the graphs that are predicted, or over what training has left."""
    if path.is_dir():
        raise UserError(f"output must be a file, got the folder '{path}'")
    if not path.exists():
        return
    own = trained.experiment.data
    graphs = [Path(place) for place in (given, own and own.path) if place]
    parts = [table_in(place, name) for place in graphs if place.is_dir() for name in FILES]
    for file in (*graphs, *parts, trained.path, *RunDir(trained.path.parent).files):
        if file.exists() and path.samefile(file):
            raise UserError(
                f"output must not be a file that is read or that a run wrote, got '{path}'"
            )
