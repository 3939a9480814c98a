import subprocess
import sys

import pytest

import graphmamba

OPTIONAL = (
    "jsonargparse", "matplotlib", "networkx", "numba", "rich", "scipy", "sklearn", "torchmetrics",
    "triton",
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


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="selective_scam"):
        _ = graphmamba.selective_scam
