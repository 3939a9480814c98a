"""What a user says about own graphs, as data."""

import math
from dataclasses import dataclass

from graphmamba.checks import check_seed, check_types
from graphmamba.data.catalog import Level
from graphmamba.data.own.labels import Kind, LabelRule
from graphmamba.data.splits import Fractions
from graphmamba.errors import UserError
from graphmamba.parse import words_in


@dataclass(frozen=True)
class OwnOptions:
    """How own graphs are read; what is left out is read from the files."""

    label: str | tuple[str, ...] = ()
    """Label columns of a folder or of a CSV of molecules; arrays have the name `y` for them."""
    kind: Kind | None = None
    """What labels are: classes, regression or multi-label."""
    classes: int | tuple[str, ...] | None = None
    """How many classes there are, numbered from 0, or their names in order."""
    level: Level | None = None
    """What is labelled: graph, node or link."""
    is_undirected: bool = False
    """Whether each edge of a folder is written once and goes both ways."""
    smiles: str = "smiles"
    """The column of SMILES in a CSV of molecules."""
    fractions: Fractions = (0.8, 0.1, 0.1)
    """Shares of training, validation and test, where the files do not say who is in which."""
    split_seed: int = 0
    """What such a split is drawn from."""

    def __post_init__(self) -> None:
        check_types(self)
        # a model is trained, chosen and tested: no part may be empty
        if not min(self.fractions) > 0 or not math.isclose(sum(self.fractions), 1):
            raise UserError(
                "fractions must be three shares above 0, of training, validation and test, that "
                f"add up to 1, got {self.fractions}"
            )
        check_seed("split_seed", self.split_seed)
        LabelRule(self.kind, self.classes)

    @property
    def labels(self) -> tuple[str, ...]:
        """The label columns."""
        return (self.label,) if isinstance(self.label, str) else self.label

    @property
    def rule(self) -> LabelRule:
        """What is said about the labels."""
        return LabelRule(self.kind, self.classes)


def names_given(given: list[str] | str, option: str) -> tuple[str, ...]:
    """Names that were typed: a parser makes a list of brackets, and leaves commas alone."""
    return tuple(words_in(given, option) if isinstance(given, str) else given)
