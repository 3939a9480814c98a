import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

import graphmamba

OPTIONAL = (
    "matplotlib", "networkx", "numba", "rich", "scipy", "sklearn",
    "torchmetrics", "triton",
)  # fmt: skip


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_package_loads_no_optional_part() -> None:
    code = f"import sys, graphmamba; print(sorted(set({OPTIONAL}) & set(sys.modules)))"
    assert run_python(code).strip() == "[]"


def test_public_names_work_on_a_machine_without_the_optional_parts() -> None:
    # A module that is None in sys.modules cannot be imported.
    hide = f"import sys; sys.modules.update(dict.fromkeys({OPTIONAL}))\n"
    use = "import graphmamba\n[getattr(graphmamba, name) for name in graphmamba.__all__]"
    run_python(hide + use)


@pytest.mark.parametrize("name", graphmamba.__all__)
def test_public_names_are_listed_and_found(name: str) -> None:
    assert name in dir(graphmamba)
    assert getattr(graphmamba, name)


KEPT_INSIDE = {"Reporter"}
"""What public functions take beside: a protocol."""


def classes_in(hint: Any) -> Iterator[type]:
    """Find the library's own classes in an annotation."""
    if isinstance(hint, type) and hint.__module__.startswith("graphmamba."):
        yield hint
    for part in get_args(hint):
        yield from classes_in(part)


PUBLIC = {
    "GatedGCNConv", "GraphMamba", "GraphMambaBlock", "GraphMambaLayer", "causal_conv1d", "fit",
    "fit_folds", "fit_seeds", "load", "load_experiment", "load_pretrained", "selective_scan",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_what_a_public_function_takes_is_public(name: str) -> None:
    called: Any = getattr(graphmamba, name)
    calls = [called.__init__, called.forward] if isinstance(called, type) else [called]
    taken = {
        kind.__name__
        for call in calls
        for argument, hint in get_type_hints(call).items()
        if argument != "return"
        for kind in classes_in(hint)
    }
    assert taken - KEPT_INSIDE <= {*graphmamba.__all__}


def test_unknown_names_are_rejected() -> None:
    with pytest.raises(AttributeError, match="selective_scam"):
        _ = graphmamba.selective_scam
