"""A package imports only from those above it in the listing."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "graphmamba"
STAGES = ("ops", "data", "ordering", "nn", "training")
SEES_EVERYTHING = {
    "", "__main__", "bench", "cli", "commands", "reported", "studies",
}  # fmt: skip
"""The package's own `__init__` is the empty name."""
INSTALLED = "weights"
"""Lies in the package only where that was installed from a wheel."""
GRAPH_LIBRARIES = {"networkx", "scipy", "torch_geometric"}


def modules_imported_by(file: Path) -> set[str]:
    """Full names of all imported modules, those inside functions included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def parts_imported_by(file: Path) -> set[str]:
    """Folders and modules right under `graphmamba`; the package itself is the empty name."""
    names = [name.split(".") for name in modules_imported_by(file) if name.startswith("graphmamba")]
    here = {path.stem for path in ROOT.iterdir()}
    return {name[1] if len(name) > 1 and name[1] in here else "" for name in names}


def parts_of_the_package() -> set[str]:
    """Folders and modules; kernels belong to the module that launches them."""
    found = {path.stem for path in ROOT.iterdir() if path.is_dir() or path.suffix == ".py"}
    return {
        name for name in found if not name.startswith("__") and not name.endswith("_kernels")
    } - {INSTALLED}


def test_the_map_for_contributors_has_every_part() -> None:
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text()
    listing = text.partition("## The tree")[2].split("```")[1]
    # what is in a folder is indented below it
    outside = "\n".join(line for line in listing.splitlines() if not line.startswith(" "))
    assert {*re.findall(r"(\w+)(?:\.py|/)", outside)} == parts_of_the_package()


def test_the_map_in_the_package_has_every_part() -> None:
    text = ast.get_docstring(ast.parse((ROOT / "__init__.py").read_text())) or ""
    listed = re.findall(r"^    (\w+(?:, \w+)*)(?:   ?|$)", text, re.MULTILINE)
    assert {name for line in listed for name in line.split(", ")} == parts_of_the_package()


def files_of(stage: str) -> list[Path]:
    return sorted((ROOT / stage).rglob("*.py"))


@pytest.mark.parametrize("stage", STAGES)
def test_imports_point_up_the_listing(stage: str) -> None:
    below = set(STAGES[STAGES.index(stage) + 1 :]) | SEES_EVERYTHING
    for file in files_of(stage):
        wrong = parts_imported_by(file) & below
        assert not wrong, f"{file.relative_to(ROOT)} imports from {sorted(wrong)}"


def test_operators_know_no_graphs() -> None:
    assert files_of("ops")
    for file in files_of("ops"):
        assert not parts_imported_by(file) & (set(STAGES) - {"ops"}), file
        libraries = {name.partition(".")[0] for name in modules_imported_by(file)}
        assert not libraries & GRAPH_LIBRARIES, file


def test_the_rule_sees_every_kind_of_import(tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(
        "import graphmamba.ordering.policy\n"
        "from graphmamba import selective_scan\n"
        "def late():\n"
        "    from graphmamba.nn import heads\n"
        "    from graphmamba import bench\n"
    )
    assert parts_imported_by(file) == {"", "ordering", "nn", "bench"}
