"""Own graphs in the place of a benchmark, as part of an experiment."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from graphmamba.data.catalog import Benchmark, Features, Task
from graphmamba.data.own.feature_names import feature_names
from graphmamba.data.own.options import OwnOptions
from graphmamba.errors import UserError


@dataclass(frozen=True)
class OwnSource(OwnOptions):
    """Where own graphs are, how they are read, and what was found in them."""

    path: str = ""
    """Folder of CSV files, an .npz of arrays, or a .csv of molecules."""
    features: Features | None = None
    """Columns of nodes and edges; filled in when the graphs are read."""
    task: Task | None = None
    """What is predicted; filled in when the graphs are read."""
    names: tuple[str, ...] = ()
    """Classes by their number, or label columns; filled in when the graphs are read."""
    columns: tuple[str, ...] = ()
    """Feature columns in their order, where files name them; filled in when they are read."""

    @classmethod
    def of(cls, options: OwnOptions, path: str = "") -> "OwnSource":
        """Begin with how graphs are read, and where they are, if it is in files."""
        return cls(**_shared(options), path=path)

    @property
    def options(self) -> OwnOptions:
        """How the files are read."""
        return OwnOptions(**_shared(self))

    def described(self, features: Features, task: Task, names: tuple[str, ...]) -> "OwnSource":
        """Return the source with what was found in its graphs."""
        columns = feature_names(Path(self.path), self.labels) if self.path else ()
        return replace(self, features=features, task=task, names=names, columns=columns)

    def as_benchmark(self) -> Benchmark:
        """Stand in the place of a catalogue's entry; sizes are those of the files."""
        if self.features is None or self.task is None:
            raise UserError(f"own graphs of '{self.path}' must be read before a model is built")
        title = self.path or "own graphs"
        return Benchmark(title, self.features, self.task, 0, 0, 0, 0.0, 0.0, self.names)


def _shared(options: OwnOptions) -> dict[str, Any]:
    """Entries that options and a source have in common."""
    return {field.name: getattr(options, field.name) for field in fields(OwnOptions)}
