"""`graphmamba data verify`."""

from pathlib import Path

from graphmamba.checks import check_choice
from graphmamba.commands.printing import say
from graphmamba.data.cache import ABOUT, PARTIAL, DamagedError, verify_store
from graphmamba.data.catalog import CATALOG
from graphmamba.data.custom.open import OWN
from graphmamba.data.datasets.sources import default_root
from graphmamba.errors import UserError


def verify(name: str, root: str | None = None) -> None:
    """Compare all that is kept of a data set, byte for byte, with the hashes that it was kept with.

    Args:
        name: The set, as `graphmamba benchmarks` lists it; or own, for all own graphs.
        root: Where data sets are kept; $GRAPHMAMBA_ROOT or ~/.cache/graphmamba by default.
    """
    check_choice("name", name, (*CATALOG, OWN))
    folder = (Path(root) if root else default_root()) / name
    places = sorted(file.parent for file in folder.glob(f"*/{ABOUT}"))
    places = [place for place in places if PARTIAL not in place.name]
    if not places:
        raise UserError(f"nothing of {name} is kept in '{folder}'")
    damaged: list[str] = []
    for place in places:
        try:
            say(f"whole     {place}, {verify_store(place):,} bytes")
        except (DamagedError, OSError) as mistake:
            say(f"damaged   {place}")
            damaged.append(str(mistake))
    if damaged:
        raise UserError(f"{len(damaged)} of {len(places)} damaged: {'; '.join(damaged)}")
