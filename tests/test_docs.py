"""What the pages show is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notes/*.md")])
SCREENS_OF_LINES = 3 * 45


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_records_that_are_named_are_there(page: Path) -> None:
    for name in re.findall(r"`(?:benchmarks/results/)?(\w+\.json)`", page.read_text()):
        if re.search(r"_(cpu|h200)\.json$", name):
            assert (ROOT / "benchmarks" / "results" / name).exists(), name


@pytest.mark.parametrize("name", ["architecture", "ordering", "determinism", "performance"])
def test_pages_of_one_subject_take_three_screens_at_most(name: str) -> None:
    assert len((ROOT / "docs" / f"{name}.md").read_text().splitlines()) <= SCREENS_OF_LINES


def test_the_example_of_an_order_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/ordering.md").read_text(), re.S)
    names: dict[str, object] = {}
    exec(block, names)
    assert names["block"] is not None
