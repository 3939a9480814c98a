"""Own graphs in the place of a benchmark, as part of an experiment."""

from dataclasses import dataclass, replace
from pathlib import Path

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

    @property
    def options(self) -> OwnOptions:
        """How the files are read."""
        return OwnOptions(**{name: getattr(self, name) for name in OwnOptions.__match_args__})

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
