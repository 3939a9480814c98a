"""Mutation testing makes the expected faults and applies them to running code."""

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.helpers.scripts import load_script

CODE = '''"""A file."""


def pick(a, b=1):
    """Not 2."""
    if not a < b and a:
        a.x = [a + 2]
        raise ValueError(f"{a + 1}")
    return a, b
'''


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    monkeypatch.setenv("GRAPHMAMBA_NO_TYPECHECK", os.environ.get("GRAPHMAMBA_NO_TYPECHECK", ""))
    return load_script("mutants", monkeypatch)


def test_faults_are_made_in_code_only(
    study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "PACKAGE", tmp_path)
    (tmp_path / "toy.py").write_text(CODE)
    found = list(study.mutants_of("toy.py", CODE))
    assert [(each.operator, each.after.strip()) for each in found] == [
        ("and or", "if not a < b or a:"),
        ("dropped not", "if a < b and a:"),
        ("comparison", "if not a <= b and a:"),
        ("removed statement", "pass"),
        ("arithmetic", "a.x = [a - 2]"),
        ("constant", "a.x = [a + 3]"),
        ("removed statement", "pass"),
    ]
    assert {each.function for each in found} == {"pick"}
    for each in found:
        assert each.is_there()
        assert each.source().count("\n") == CODE.count("\n")


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("return a, b", "return b, a", (1, 0)),
        ("not a < b and a", "True", None),
    ],
)
def test_a_fault_is_applied_to_imported_functions(
    study: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: str,
    after: str,
    found: tuple[int, int] | None,
) -> None:
    monkeypatch.setattr(study, "PACKAGE", tmp_path)
    (tmp_path / "toy.py").write_text(CODE)
    spec = spec_from_file_location("toy", tmp_path / "toy.py")
    assert spec
    assert spec.loader
    toy = module_from_spec(spec)
    spec.loader.exec_module(toy)
    pick = toy.pick
    assert pick(0) == (0, 1)
    study.apply(study.Mutant("toy.py", "pick", "by hand", before, after, 0))
    if found is None:
        with pytest.raises(AttributeError):
            pick(0)
    else:
        assert pick(0) == found
