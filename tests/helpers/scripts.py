"""The scripts of `benchmarks/`, which are no package, as modules."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

import pytest

from tests.helpers.processes import ROOT


def load_script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load `benchmarks/NAME.py` for the time of a test."""
    spec = spec_from_file_location(f"benchmark_of_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    # Its dataclasses look their module up.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module
