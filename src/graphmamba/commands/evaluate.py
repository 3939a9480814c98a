"""`graphmamba evaluate`."""

import json as json_format
import sys
from pathlib import Path

import torch

from graphmamba.commands.printing import say
from graphmamba.commands.source import (
    ALL,
    check_fits,
    check_parts,
    graphs_of,
    load_model,
    on_other_data,
    part_asked,
)
from graphmamba.data.custom.options import names_given
from graphmamba.errors import UserError
from graphmamba.training.experiment import DeviceName


def evaluate(
    checkpoint: str | None = None,
    *,
    dataset: str | None = None,
    input_: str | None = None,
    target: list[str] | str | None = None,
    split: str | None = None,
    pretrained: str | None = None,
    weights: str | None = None,
    device: DeviceName = "auto",
    data_dir: str | None = None,
    json: bool = False,
) -> None:
    """Score a trained model on a split, by the metrics of its task.

    It computes as in training, so that on the same device the scores are those of the run; scores
    stored with the weights are shown beside them.

    Args:
        checkpoint: The directory of a run, or a file of weights.
        dataset: Score on this benchmark data set, which needs the same features and targets.
        input_: Score on your own labelled graphs: a folder or file, as for `graphmamba
            train`.
        target: Target column of the input, or several as one,two or [one, two]; default: as in
            training. For a model of a benchmark, classes are numbers from 0.
        split: train, validation, test or all; default: test, and all graphs of an input. Files of
            an input need a `split` for the others.
        pretrained: DATASET or DATASET/MODEL: use weights shipped with the package.
        weights: Directory of such weights; default: $GRAPHMAMBA_WEIGHTS or the package's own.
        device: auto uses a GPU if there is one.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        json: Print one JSON object instead of a table.
    """
    from graphmamba.commands.printing import scores_table
    from graphmamba.environment import resolve_device
    from graphmamba.training.evaluate import labels_per_graph
    from graphmamba.training.graphs import open_data
    from graphmamba.training.predict import scorer_of
    from graphmamba.training.progress import bar
    from graphmamba.training.run_dir import json_numbers

    part = part_asked(split, input_)
    place = resolve_device(device)
    trained = load_model(checkpoint, pretrained, weights)
    labels = names_given(target or "", "--target")
    experiment = on_other_data(trained, dataset, input_, labels)
    sets = Path(data_dir) if data_dir else None
    experiment, store = open_data(experiment, sets, draws_split=input_ is None)
    check_fits(trained, experiment)
    if input_ is None:
        check_parts(trained, experiment, store)
    title = experiment.dataset_info.title
    ids = graphs_of(store, part, title)
    # those without a label are read, and not scored
    of = None if part == ALL else part
    count = int((labels_per_graph(store, experiment.dataset_info.task.level, of)[ids] > 0).sum())
    if not count:
        raise UserError(f"{title} must hold labels, and its graphs have none ({len(ids)})")
    scorer = scorer_of(trained, store, place)
    with bar("evaluating") as tell:
        scores = scorer.score(of or torch.arange(len(scorer.store.scored)), tell)
    is_same = dataset is None and input_ is None
    reported = trained.reported.get(part, {}) if is_same else {}
    if json:
        told = {
            "checkpoint": str(trained.path),
            "data": title,
            "split": part,
            "graphs": count,
            **json_numbers(scores),
            **({"reported": json_numbers(reported)} if reported else {}),
        }
        sys.stdout.write(json_format.dumps(told, indent=2, allow_nan=False) + "\n")
    else:
        heading = f"{trained.path} on {title}, graphs scored: {count:,}"
        rows = {part: scores} | ({f"{part}, reported": reported} if reported else {})
        say(scores_table(heading, rows))
