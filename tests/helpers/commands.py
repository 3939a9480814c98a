"""What commands write, read again."""

import csv
import json
from pathlib import Path

import pytest

from graphmamba.cli import main


def scored(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What an evaluation says, read from its JSON."""
    capsys.readouterr()
    main(["evaluate", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def predicted(words: list[str]) -> list[str]:
    """The graphs in the file that a command writes."""
    main(["predict", *words, "--output", "out.csv"])
    return [row["graph"] for row in csv.DictReader(Path("out.csv").read_text().splitlines())]
