"""`graphmamba study results`: runs on disk as a page, beside what the paper reports."""

from pathlib import Path

from graphmamba.commands.printing import say
from graphmamba.errors import UserError
from graphmamba.study.collected import collect
from graphmamba.study.keep import keep_runs
from graphmamba.study.results_curves import draw_sets
from graphmamba.study.results_page import FLAG, MARK, page
from graphmamba.whole_files import write_text


def results(
    folder: Path,
    out: Path = Path("docs/results.md"),
    keep: Path | None = None,
    curves: bool = True,
) -> None:
    """Collect runs into a page, beside the published numbers.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N for each run.
        out: Markdown file, whose folder is made where it is missing; what was written in it by
            hand, below its mark, is kept, and a file without the mark is refused.
        keep: Where to copy results.json, metrics.csv and config.yaml of the runs first; the page
            is then made of all that is there.
        curves: Whether to draw the epochs of each set, into a folder named as the page (needs the
            extra plots).
    """
    by_hand = _written_by_hand(out)
    if keep is not None:
        keep_runs(folder, keep)
        folder = keep
    found = collect(folder)
    pictures = draw_sets(found.lines, out.with_suffix("")) if curves else {}
    write_text(out, f"{page(found, pictures)}\n{MARK}{by_hand}")
    runs = sum(len(line.runs) for line in found.lines)
    say(f"{len(found.lines)} rows of {runs} runs in {out}")
    for line in found.lines:
        if not line.is_done:
            epochs = ", ".join(run.epochs for run in line.runs)
            say(f"unfinished: {line.name}, {epochs} epochs")
        if line.is_short:
            say(f"{FLAG} {line.name}: {line.mean:.4f} against {line.paper}")
    for why in found.scoreless:
        say(f"without a score: {why}")


def _written_by_hand(out: Path) -> str:
    """Return what stands below the mark of an earlier page; refuse what is no such page."""
    if out.is_dir():
        raise UserError(f"out must be a file, got the folder '{out}'")
    # a file of another kind need not even be text
    before = out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""
    _, mark, by_hand = before.partition(MARK)
    if before.strip() and not mark:
        raise UserError(
            f"out must be a page of this command, or a new file, got '{out}', which lacks the line "
            f"'{MARK}'"
        )
    return by_hand or "\n"
