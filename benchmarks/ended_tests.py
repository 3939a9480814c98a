"""A plugin of pytest that writes down each test as it ends, so that a killed run keeps its tests.

Each line of the file that ENDED_TESTS names is one stage of one test, as JSON.
"""

import json
import os
from pathlib import Path
from typing import Any


def pytest_runtest_logreport(report: Any) -> None:
    """Add a line for what has just ended: the preparation of a test, its call, or what follows."""
    line = {
        "test": report.nodeid,
        "stage": report.when,
        "outcome": report.outcome,
        "seconds": report.duration,
    }
    with Path(os.environ["ENDED_TESTS"]).open("a") as file:
        file.write(json.dumps(line) + "\n")
