"""Shapes are checked while tests run; tests that need what is not here are skipped, and say so."""

import os
from importlib.util import find_spec
from pathlib import Path

# PyTorch reads this when it is imported, and so do the processes that tests start. Threads that
# spin while they wait take the cores from those that work: small tests took ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch
from jaxtyping import install_import_hook

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("GRAPHMAMBA_DATA", ROOT.parent / "shared" / "data"))

# Every annotated shape in the package is checked at each call. The hook sits here and not in
# pytest's options, because those would stop every run on a machine without beartype. The hook
# cannot live with torch.compile: such tests run in a process that sets GRAPHMAMBA_NO_TYPECHECK=1.
if find_spec("beartype") and os.environ.get("GRAPHMAMBA_NO_TYPECHECK") != "1":
    install_import_hook("graphmamba", "beartype.beartype")

if find_spec("hypothesis"):
    from hypothesis import settings

    # A first call compiles kernels, so that a deadline would measure the compiler; and the same
    # commit should give the same result wherever it is tested.
    settings.register_profile("graphmamba", deadline=None, derandomize=True, max_examples=20)
    settings.register_profile("thorough", deadline=None, derandomize=True, max_examples=200)
    settings.load_profile("graphmamba")

# Processes that tests start find the package too, where it is not installed.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])

# Workers side by side would otherwise fight over the same cores; and some tests compare bits with
# those of processes that have one thread, where more would round otherwise.
torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough", action="store_true", help="long sweeps, and ten times as many random examples"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("thorough") and find_spec("hypothesis"):
        settings.load_profile("thorough")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked_for = config.getoption("markexpr")
    is_thorough = config.getoption("thorough")
    missing = {
        "thorough": None if is_thorough else "runs when asked for by --thorough",
        "gpu": None if torch.cuda.is_available() else "needs a CUDA device",
        "realdata": None if DATA.is_dir() else "needs benchmark files: set GRAPHMAMBA_DATA",
        "network": None if "network" in asked_for else "runs when asked for by -m network",
    }
    for item in items:
        for marker, reason in missing.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real benchmark files; only for tests marked `realdata`."""
    return DATA


def pytest_runtest_setup() -> None:
    """Let a test draw the same numbers, whichever ran before it in its process."""
    torch.manual_seed(0)
