"""The scripts of `benchmarks/`, which are no package, as modules."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.helpers.processes import ROOT


def load_script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load `benchmarks/NAME.py` for the time of a test."""
    # scripts may import one another
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = spec_from_file_location(f"benchmark_of_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    # Its dataclasses look their module up.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def run_script(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch, out: Path, *words: object
) -> dict[str, Any]:
    """Run a script with these words and return the record that it wrote."""
    given = ["--commit", "0123abc", "--out", out, *words]
    monkeypatch.setattr(sys, "argv", [f"{module.__name__}.py", *map(str, given)])
    module.main()
    written: dict[str, Any] = json.loads(out.read_text())
    environment = written.get("environment", written)
    assert environment["commit"] == "0123abc"
    return written
