import re
import subprocess
from pathlib import Path

import pytest
import torch

from graphmamba import environment
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError

ROOT = Path(__file__).parents[1]


def test_devices_that_are_not_here_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (resolve_device("auto").type == "cuda") == torch.cuda.is_available()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("abacus", "cuda"):
        with pytest.raises(UserError, match=f"got '{name}'"):
            resolve_device(name)


@pytest.mark.parametrize(
    ("files", "compiler", "told"),
    [
        ([], None, "there is no gcc, no clang"),
        (["gcc"], None, "Python.h' of Python's headers is missing"),
        (["gcc", "Python.h"], "icc", "'icc', which $CC names, is not there"),
        (["gcc", "Python.h"], None, None),
        (["built"], None, None),
    ],
)
def test_a_gpu_without_what_builds_launchers_is_rejected(
    files: list[str],
    compiler: str | None,
    told: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in files:
        (tmp_path / name).touch(mode=0o755)
    cache = tmp_path if files == ["built"] else tmp_path / "none"
    values = {"PATH": str(tmp_path), "TRITON_CACHE_DIR": str(cache), "CC": compiler or ""}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(environment, "find_spec", lambda _: True)
    monkeypatch.setattr(environment.sysconfig, "get_path", lambda *_: str(tmp_path))
    if told is None:
        assert resolve_device("auto").type == "cuda"
    else:
        with pytest.raises(UserError, match=re.escape(told)):
            resolve_device("auto")
    assert resolve_device("cpu").type == "cpu"


def test_a_measurement_says_where_it_comes_from() -> None:
    found = describe(torch.device("cpu"))
    assert found["torch"] == torch.__version__
    assert found["device"]
    assert describe(torch.device("cpu"), commit="0123abc")["commit"] == "0123abc"


def test_a_copy_without_history_takes_its_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "__file__", str(tmp_path / "src" / "package" / "module.py"))
    monkeypatch.delenv("GRAPHMAMBA_COMMIT", raising=False)
    assert describe(torch.device("cpu"))["commit"] is None
    monkeypatch.setenv("GRAPHMAMBA_COMMIT", "0123abc")
    assert describe(torch.device("cpu"))["commit"] == "0123abc"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository's history")
def test_the_commit_is_that_of_the_checkout() -> None:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    commit = str(describe(torch.device("cpu"))["commit"])
    assert commit.removesuffix("-dirty") == head.stdout.strip()
