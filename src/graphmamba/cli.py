"""The command line: a table of commands, each a typed function imported at first use."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from graphmamba import __version__
from graphmamba.errors import ElsewhereError, UserError


@dataclass(frozen=True)
class Command:
    """A command's one-line summary, and where its function is."""

    summary: str
    function: str
    """`module:function`; options and their help come from its signature and docstring."""
    first: str = ""
    """Parameter that may come first without its name, though it need not be given."""

    def load(self) -> Callable[..., None]:
        """Import the function; only now are its dependencies needed."""
        module, name = self.function.split(":")
        return getattr(import_module(module), name)


LONGEST = 2000
"""Letters of a message, of which the first ones say what is wrong."""
COMMANDS = {
    "bench scan": Command(
        "check the selective scan against its reference on this machine, and time it",
        "graphmamba.bench:bench_scan",
    ),
    "benchmarks": Command(
        "list the ten benchmark data sets: metric, sizes, parameters of each model",
        "graphmamba.commands.benchmarks:list_benchmarks",
    ),
    "data build": Command(
        "build a benchmark data set: from local files (--from DIR), generated or downloaded",
        "graphmamba.commands.data:build",
    ),
    "data info": Command(
        "print and plot sizes, degrees, diameters and labels of a data set or of your graphs",
        "graphmamba.commands.data:info",
    ),
    "data verify": Command(
        "compare the cached files of a data set with their stored hashes",
        "graphmamba.commands.data:verify",
    ),
    "evaluate": Command(
        "score a trained model on its data set, another one or your graphs",
        "graphmamba.commands.inference:evaluate",
        first="checkpoint",
    ),
    "predict": Command(
        "write the predictions of a trained model to a CSV file",
        "graphmamba.commands.inference:predict",
        first="checkpoint",
    ),
    "study ablation": Command(
        "train variants of Graph-Mamba that differ in one component: the paper's ablation",
        "graphmamba.studies.ablation:ablation",
    ),
    "study efficiency": Command(
        "measure FLOPs, memory and time of Graph-Mamba and its baselines: the paper's figures",
        "graphmamba.studies.efficiency:efficiency",
    ),
    "study results": Command(
        "collect runs into a page of results, beside the published scores",
        "graphmamba.studies.results:results",
    ),
    "study weights": Command(
        "export the best run of each model as weights with a model card",
        "graphmamba.studies.weight_cards:weights",
    ),
    "train": Command(
        "train a model: a preset, a YAML file or your own graphs",
        "graphmamba.commands.train:train",
        first="name",
    ),
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command; an error in its arguments ends it with one line and status 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = next((each for each in COMMANDS if words[: len(each.split())] == each.split()), None)
    try:
        try:
            if named is None:
                sys.stdout.write(_answer_without_command(words))
            else:
                _run(named, words[len(named.split()) :])
        finally:
            # what nobody reads is found out here, and not when Python has no more say in it
            sys.stdout.flush()
    except ElsewhereError:
        sys.exit(2)
    except BrokenPipeError:
        # what takes the output, such as `head`, has enough; Python would complain when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (UserError, OSError) as error:
        _reject(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def _run(name: str, arguments: list[str]) -> None:
    # PyTorch reads this when it is imported. Threads that spin while they wait take the cores from
    # those that work: beside other programs a step took ten times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from graphmamba.commands.arguments import Parser

    command = COMMANDS[name]
    function = command.load()
    function(**Parser(f"graphmamba {name}", function, command.first).read(arguments))


def _answer_without_command(words: list[str]) -> str:
    """Say what there is; words that spell neither a command nor the start of one are rejected."""
    if words == ["--version"]:
        return f"graphmamba {__version__}\n"
    spelled = [word for word in words if word not in {"-h", "--help"}]
    listed = [name for name in COMMANDS if name.split()[: len(spelled)] == spelled]
    if not listed:
        raise UserError(f"no command '{' '.join(spelled)}'; there is: {', '.join(COMMANDS)}")
    width = max(map(len, listed))
    lines = [f"  {name:{width}}  {COMMANDS[name].summary}" for name in listed]
    return "\n".join(
        [
            f"usage: {' '.join(['graphmamba', *spelled])} COMMAND [OPTIONS]",
            "",
            *lines,
            "",
            "`graphmamba COMMAND --help` explains the options, `graphmamba --version` the version.",
            "",
        ]
    )


def _reject(message: str) -> NoReturn:
    # before processes have met all make the same error
    torch = sys.modules.get("torch")
    have_met = torch is not None and torch.distributed.is_initialized()
    if have_met or os.environ.get("LOCAL_RANK", "0") == "0":
        # Parsers like to explain themselves over several lines, and values may be of any length.
        # What a file holds must not move the terminal's cursor either.
        words = " ".join(message.split())
        line = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in words)
        cut = "..." if len(line) > LONGEST else ""
        sys.stderr.write(f"graphmamba: {line[:LONGEST]}{cut}\n")
    sys.exit(2)
