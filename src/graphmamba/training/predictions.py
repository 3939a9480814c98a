"""What a model says about graphs, nodes or pairs of nodes, in the units of its labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.catalog import LossName, Task
from graphmamba.errors import UserError

PredictionKind = Literal["classes", "multi-label", "regression", "link"]


@dataclass(frozen=True)
class Predictions:
    """One row for each graph, node or pair, in the order of the graphs."""

    kind: PredictionKind
    names: tuple[str, ...]
    """Classes, or what each column says."""
    graph: Int[Tensor, " rows"]
    """Number of the graph that a row belongs to."""
    node: Int[Tensor, " rows"] | None
    """Number of the node within its graph; None where graphs or pairs are predicted."""
    pair: Int[Tensor, "rows 2"] | None
    """Both nodes within their graph; None where graphs or nodes are predicted."""
    values: Float[Tensor, "rows columns"]
    """Probabilities of classes and answers, or the predicted numbers themselves."""
    spread: Float[Tensor, "rows columns"] | None
    """Standard deviation of each value over random line-ups; None where a model has none."""

    @property
    def classes(self) -> Int[Tensor, " rows"]:
        """The most probable class of each row; -1 for no number. Only classes have one."""
        if self.kind != "classes":
            raise UserError(
                f"kind must be 'classes' for one class a row, got {self.kind!r}: see values"
            )
        return self.values.argmax(dim=1).where(~self.values.isnan().any(dim=1), -1)

    @property
    def labels(self) -> list[str]:
        """The name of the most probable class of each row, likewise; empty for no number."""
        return [self.names[number] if number >= 0 else "" for number in self.classes.tolist()]

    def __len__(self) -> int:
        return len(self.graph)

    @classmethod
    def cat(cls, parts: Sequence["Predictions"]) -> "Predictions":
        """Put parts end to end."""
        first = parts[0]

        def joined(name: str) -> Tensor | None:
            if getattr(first, name) is None:
                return None
            return torch.cat([getattr(part, name) for part in parts])

        columns = {name: joined(name) for name in ("graph", "node", "pair", "values", "spread")}
        return cls(kind=first.kind, names=first.names, **columns)  # type: ignore[arg-type]


def kind_of(task: Task) -> PredictionKind:
    """What the rows of a task are."""
    if task.level == "link":
        return "link"
    if task.classes:
        return "classes"
    return "multi-label" if task.metric == "average_precision" else "regression"


def names_of(task: Task, given: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What the columns are called; numbers where nobody has named them."""
    if task.level == "link":
        return ("score",)
    if given:
        return given
    return tuple(map(str, range(task.classes or task.outputs)))


def values_of(
    output: Float[Tensor, "rows outputs"], kind: PredictionKind, loss: LossName
) -> Float[Tensor, "rows columns"]:
    """Turn what a model gives out into what its labels are.

    Scores of pairs become probabilities where training took them for logits.
    """
    if kind == "classes" and output.shape[1] > 1:
        return output.softmax(dim=1)
    if kind == "classes":
        # one logit for two classes
        return torch.cat([(-output).sigmoid(), output.sigmoid()], dim=1)
    if kind == "multi-label" or loss == "link_cross_entropy":
        return output.sigmoid()
    return output
