"""What the feature columns of a user's files are called, so that none takes another's place."""

from pathlib import Path

from graphmamba.data.own.arrays import array_features
from graphmamba.data.own.folder import folder_features
from graphmamba.errors import UserError


def feature_names(path: Path, label: tuple[str, ...]) -> tuple[str, ...]:
    """Name the feature columns of nodes, then of edges, in their order.

    Args:
        path: A folder of CSV files, an `.npz`, or a `.csv` of molecules.
        label: Columns that are no features.

    Returns:
        Names such as `nodes/size`; none where the file does not name them, or where, as for
        molecules, they are always the same.
    """
    if path.is_dir():
        return folder_features(path, label)
    return array_features(path) if path.suffix == ".npz" and path.is_file() else ()


def check_names(path: Path, label: tuple[str, ...], known: tuple[str, ...]) -> None:
    """Refuse files whose feature columns are not those that a model knows, in their order.

    Args:
        path: As in `feature_names`.
        label: Columns that are no features.
        known: What `feature_names` gave in training; nothing takes any.
    """
    if not known:
        return
    found = feature_names(path, label)
    # arrays need not be named, and then only their number can be checked
    if found != known and (found or path.is_dir()):
        raise UserError(
            f"{path} must have the features that the model was trained on, in their order, "
            f"{', '.join(known)}; got {', '.join(found) or 'none'}"
        )
