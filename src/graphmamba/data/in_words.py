"""Columns and tasks as a message tells them."""

from graphmamba.data.catalog import Features, Task


def features_in_words(features: Features) -> str:
    """Say what nodes and edges carry."""
    nodes = _counted(features.node_columns, "number") + " a node"
    edges = _counted(features.edge_columns, "number") + " an edge"
    return ", ".join(
        [
            "atoms of molecules" if features.nodes == "atoms" else nodes,
            "bonds" if features.edges == "bonds" else edges,
        ]
    )


def task_in_words(task: Task) -> str:
    """Say what is predicted of what, and how it is scored."""
    if task.level == "link":
        return f"pairs of nodes by {task.metric}"
    answers = "label" if task.metric == "average_precision" else "target"
    labels = f"{task.classes} classes" if task.classes else _counted(task.outputs, answers)
    return f"{labels} of a {task.level} by {task.metric}"


def _counted(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
