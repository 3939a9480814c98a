"""Fuzzing: give damaged input files to the commands.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/fuzz.py --inputs 1200 --seed 0

Small graphs, molecules and an experiment are written and damaged at random: bytes of files, cells
of tables, entries of the experiment. A command may accept an input, or reject it with one line;
tracebacks, hangs and longer messages are recorded.
"""

import argparse
import contextlib
import io
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from rich.console import Console

from graphmamba.cli import main as graphmamba
from graphmamba.environment import describe
from graphmamba.studies.report import table, write_json
from graphmamba.training.experiment import load_experiment

RESULTS = Path(__file__).parent / "results"
SECONDS = 60
"""Time after which an input counts as a hang."""
GIBIBYTES = 8
"""Address space that an input may take."""
LONGEST_LINE = 2200
REJECTED = 2
STATUSES = (0, REJECTED, 75)
WORDS = (
    b"nan", b"-inf", b"1e999", b"-1", b"\0", b"\xff\xfe", b'"', b"\n", b"\r\n", b",", b"'", b"[",
    b"{", b"*a", b"&a ", b"!!int x", b"2020-13-45", b"9223372036854775808", b"null", b"true", b": ",
    b"- ", b"9" * 30, b"[" * 2000, "\u202e\u0000é".encode(), b"1,5", b"C1CC", b"<<: ", b"#", b"\t",
)  # fmt: skip
"""Inserted into files."""
VALUES: tuple[Any, ...] = (
    None, -1, 0, 1.5, 2**70, 10**9, 1e308, float("nan"), float("inf"), "x", "", "0", True, [], {},
    [1, 2], {"x": 1}, "x" * 5000,
)  # fmt: skip
"""Values for entries of an experiment."""


class HangError(BaseException):
    """An input took too long; not an `Exception`, so that no handler on the way catches it."""


@dataclass
class Tally:
    """Outcomes of the inputs of one format."""

    tried: int = 0
    accepted: int = 0
    rejected: int = 0
    tracebacks: int = 0
    hangs: int = 0
    found: list[str] = field(default_factory=list)
    """Distinct failures."""


def main() -> None:
    """Run all inputs, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--inputs", type=int, default=1200, help="number of inputs over all formats"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the damage")
    parser.add_argument("--only", choices=tuple(FORMATS), help="a single format")
    parser.add_argument("--keep", type=Path, help="directory for the inputs that fail")
    parser.add_argument("--out", type=Path, default=RESULTS / "fuzz.json")
    parser.add_argument("--commit", help="recorded commit, where the code has no git history")
    options = parser.parse_args()

    names = [options.only] if options.only else list(FORMATS)
    begin, inputs = time.monotonic(), -(-options.inputs // len(names))
    with tempfile.TemporaryDirectory() as place:
        tallies = {
            name: run(name, inputs, options.seed, Path(place), options.keep) for name in names
        }
    columns = ("tried", "accepted", "rejected", "tracebacks", "hangs")
    rows = [
        [name, *(str(getattr(tally, each)) for each in columns)] for name, tally in tallies.items()
    ]
    Console().print(table("Damaged inputs", ["format", *columns], rows, words=1))
    for name, tally in tallies.items():
        for each in tally.found:
            Console().print(f"{name}: {each}", markup=False)
    environment = describe(torch.device("cpu"), options.commit)
    asked = {"inputs": options.inputs, "seed": options.seed, "seconds_allowed": SECONDS}
    found = {"seconds": time.monotonic() - begin, "formats": tallies}
    write_json(options.out, {"environment": environment, "asked": asked, **found})


def run(name: str, inputs: int, seed: int, place: Path, keep: Path | None = None) -> Tally:
    """Damage the files of one format repeatedly and run its command on them.

    Args:
        name: The format.
        inputs: Number of inputs.
        seed: Seed of the damage, combined with the number of the input.
        place: Directory for the files.
        keep: Directory for the inputs that fail.
    """
    write, damage, words = FORMATS[name]
    whole, tried = place / name / "whole", place / name / "tried"
    whole.mkdir(parents=True)
    write(whole)
    tally = Tally()
    with limited_memory():
        for number in range(inputs):
            shutil.rmtree(tried, ignore_errors=True)
            shutil.copytree(whole, tried)
            # the first input is not damaged, and has to be accepted
            if number:
                damage(tried, random.Random(f"{seed} {name} {number}"))
            found = answer([*words(tried), "--data_dir", str(place / "sets")], tally)
            if number == 0 and tally.accepted != 1:
                raise RuntimeError(f"{name}: whole files are not accepted: {found}")
            if found is not None and found not in tally.found:
                tally.found.append(found)
            if found is not None and keep is not None:
                shutil.copytree(tried, keep / f"{name}-{number}", dirs_exist_ok=True)
    return tally


def answer(words: list[str], tally: Tally) -> str | None:
    """Run a command and count its outcome; return a description of a failure."""
    tally.tried += 1
    shown, errors, status = io.StringIO(), io.StringIO(), 0
    try:
        with time_limit(), contextlib.redirect_stdout(shown), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(errors):
                graphmamba(words)
    except SystemExit as ended:
        status = int(ended.code or 0)
    except HangError:
        tally.hangs += 1
        return f"hangs: {' '.join(words[:2])}"
    except BaseException as error:
        tally.tracebacks += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {Path(last.filename).name}, {last.name}: {error}"[:200]
    tally.rejected += status == REJECTED
    tally.accepted += status != REJECTED
    told = errors.getvalue()
    is_one_line = told.endswith("\n") and told[:-1].isprintable() and len(told) < LONGEST_LINE
    if status not in STATUSES or (status == REJECTED and not is_one_line):
        return f"ends with {status} and says {told[:200]!r}"
    return None


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raise `HangError` after the time limit."""

    def stop(*_: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Limit the address space, so that an input gets a `MemoryError`."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + GIBIBYTES * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def damage_bytes(folder: Path, draw: random.Random) -> None:
    """Change bytes of a file: flip, delete, repeat, insert."""
    path = draw.choice(sorted(folder.iterdir()))
    content = path.read_bytes()
    for _ in range(draw.choice((1, 1, 2, 4))):
        begin = draw.randrange(len(content) + 1)
        end = min(len(content), begin + draw.choice((1, 2, 8, 64, len(content))))
        span = content[begin:end]
        flipped = bytes([span[0] ^ 1 << draw.randrange(8)]) + span[1:] if span else b""
        word, noise = draw.choice(WORDS), draw.randbytes(min(len(span), 64))
        changed = draw.choice((b"", flipped, noise, span * 2, word, word + span))
        content = content[:begin] + changed + content[end:]
    path.write_bytes(content)


def damage_cells(folder: Path, draw: random.Random) -> None:
    """Change cells, lines or bytes of a table."""
    if draw.random() < 0.4:  # noqa: PLR2004
        damage_bytes(folder, draw)
        return
    path = draw.choice(sorted(folder.glob("*.csv")))
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    for _ in range(draw.choice((1, 2, 5))):
        line = draw.choice(lines)
        if draw.random() < 0.2:  # noqa: PLR2004
            lines.append(line)
        else:
            line[draw.randrange(len(line))] = draw.choice(WORDS).decode(errors="replace")
    path.write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")


def damage_arrays(folder: Path, draw: random.Random) -> None:
    """Change numbers, type or shape of an array, or bytes of the archive."""
    (path,) = folder.glob("*.npz")
    if draw.random() < 0.4:  # noqa: PLR2004
        damage_bytes(folder, draw)
        return
    with np.load(path) as read:
        arrays = dict(read)
    name = draw.choice(sorted(arrays))
    values, number = arrays[name], draw.choice((-1, 2**62, 10**9, 0, 3))
    arrays[name] = draw.choice(
        (
            lambda: values[:-1], lambda: values[None], lambda: values.astype(np.float32) * np.nan,
            lambda: values.astype("S3"), lambda: values[..., :0], lambda: np.array(number),
            lambda: np.where(np.arange(values.size).reshape(values.shape) == 1, number, values),
        )
    )()  # fmt: skip
    if draw.random() < 0.2:  # noqa: PLR2004
        del arrays[name]
    np.savez(path, **arrays)


def damage_entries(folder: Path, draw: random.Random) -> None:
    """Change or drop entries of an experiment, which stays YAML."""
    path = folder / "my.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for _ in range(draw.choice((1, 1, 3))):
        place = content
        while True:
            key = draw.choice(sorted(place) if isinstance(place, dict) else [*range(len(place))])
            below = place[key]
            if not (isinstance(below, dict | list) and below and draw.random() < 0.85):  # noqa: PLR2004
                break
            place = below
        if draw.random() < 0.15:  # noqa: PLR2004
            del place[key]
        else:
            place[key] = deepcopy(draw.choice(VALUES))
    path.write_text(yaml.safe_dump(content), encoding="utf-8")


def write_folder(folder: Path) -> None:
    """Rings and lines as CSV files."""
    graphs, nodes, edges = ["graph,taste"], ["graph,node,size"], ["graph,source,target"]
    for graph in range(8):
        size, is_ring = 4 + graph % 3, graph % 2 == 0
        graphs.append(f"g{graph},{'sweet' if is_ring else 'sour'}")
        nodes += [f"g{graph},n{node},{node % 2}" for node in range(size)]
        ends = size if is_ring else size - 1
        edges += [f"g{graph},n{node},n{(node + 1) % size}" for node in range(ends)]
    for name, lines in (("graphs", graphs), ("nodes", nodes), ("edges", edges)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_arrays(folder: Path) -> None:
    """Lines of three nodes whose target is the sum of their features."""
    x = np.arange(24, dtype=np.float64)[:, None] / 8
    np.savez(
        folder / "graphs.npz",
        node_ptr=3 * np.arange(9),
        edge_ptr=2 * np.arange(9),
        edge_index=np.tile(np.array([[0, 1], [1, 2]]), 8),
        x=x,
        y=x.reshape(8, 3).sum(axis=1) + 0.5,
    )


def write_molecules(folder: Path) -> None:
    """A few molecules with a label."""
    smiles = ("CCO", "c1ccccc1", "CC(=O)O", "C1CC1", "N#N", "O", "CC(C)Cc1ccc(C)cc1", "[Na+].[Cl-]")
    lines = [f"{each},{number % 2}" for number, each in enumerate(smiles)]
    text = "\n".join(["smiles,toxic", *lines]) + "\n"
    (folder / "molecules.csv").write_text(text, encoding="utf-8")


def write_experiment(folder: Path) -> None:
    """All entries of an experiment that takes a moment."""
    small = {
        "split_sizes": [8, 4, 4],
        "model.channels": 8,
        "model.layers": 1,
        "train.batch_size": 4,
    }
    experiment = load_experiment("pattern/default", small)
    (folder / "my.yaml").write_text(experiment.to_yaml(), encoding="utf-8")


Write = Callable[[Path], None]
Damage = Callable[[Path, random.Random], None]
Words = Callable[[Path], list[str]]
FORMATS: dict[str, tuple[Write, Damage, Words]] = {
    "csv": (
        write_folder,
        damage_cells,
        lambda folder: ["data", "info", str(folder), "--target", "taste"],
    ),
    "npz": (
        write_arrays,
        damage_arrays,
        lambda folder: ["data", "info", str(folder / "graphs.npz")],
    ),
    "smiles": (
        write_molecules,
        damage_cells,
        lambda folder: ["data", "info", str(folder / "molecules.csv"), "--target", "toxic"],
    ),
    "yaml": (
        write_experiment,
        damage_bytes,
        lambda folder: ["train", str(folder / "my.yaml"), "--print_config"],
    ),
    "experiment": (
        write_experiment,
        damage_entries,
        lambda folder: [
            "train", str(folder / "my.yaml"), "--max-time", "0", "--run_dir", str(folder / "run"),
        ],
    ),
}  # fmt: skip
"""Writer, damage and command of each format."""

if __name__ == "__main__":
    main()
