"""Bring runs, weights and configs of version 1 to version 2: the same content under today's names.

    python benchmarks/migrate.py PATH [PATH ...]

A path is a `.yaml` of an experiment or of a run, a `results.json`, a file of weights, or a folder
of any of these. Tensors keep their bits; files of version 2 stay as they are.
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from safetensors import safe_open
from safetensors.torch import save_file

OPTIM = {
    "learning_rate": "lr",
    "weight_decay": "weight_decay",
    "optimizer": "optimizer",
    "clip": "max_grad_norm",
    "schedule": "schedule",
    "warmup": "warmup",
    "patience": "patience",
    "factor": "factor",
    "least_learning_rate": "min_lr",
}
TRAIN = {
    "batch_size": "batch_size",
    "epochs": "epochs",
    "loss": "loss",
    "average": "ema_decay",
    "statistics": "recalibrate_batch_norm",
}
KEYS: dict[str, dict[str, str]] = {
    "": {"benchmark": "dataset", "sizes": "split_sizes", "own": "data"},
    "data": {
        "label": "target",
        "kind": "task",
        "task": "labels",
        "names": "class_names",
        "is_undirected": "undirected",
        "fractions": "split_ratios",
    },
    "encoder": {
        "gate_frequencies": "stable_gate_eigenvectors",
        "standardization": "normalize_inputs",
    },
    "encoder.laplacian": {"frequencies": "num_eigenvectors"},
    "encoder.random_walk": {"walks": "walk_length"},
    "model": {
        "local": "local_model",
        "mixer": "global_model",
        "join": "layer",
        "order": "ordering",
        "plain": "residual",
    },
    "model.ordering": {
        "key": "score",
        "deal": "bin_assignment",
        "frequencies": "num_eigenvectors",
    },
    "model.residual": {"has_unit_rows": "l2_normalize"},
    "options": {"fast": "cuda_graph", "accumulate": "accumulate_grad_batches"},
}
"""Names of keys by the group that they are in, which is called by its new name."""
VALUES = {
    ("model.layer", "plain"): "residual",
    ("model.ordering.score", "smooth"): "spectral",
    ("model.ordering.noise", "ties"): "tie_breaking",
    ("model.ordering.clusters", "ties"): "tie_breaking",
    ("options.compile", True): "on",
    ("options.compile", False): "off",
}
PARAMETERS = (
    (r"(?<=layers\.)(\d+)\.local\.", r"\1.local_model."),
    (r"(?<=layers\.)(\d+)\.mixer\.", r"\1.global_model."),
    (r"(?<=layers\.)(\d+)\.local_norm\.", r"\1.norm_local."),
    (r"(?<=layers\.)(\d+)\.mixer_norm\.", r"\1.norm_global."),
    (r"(?<=layers\.)(\d+)\.widen\.", r"\1.fc1."),
    (r"(?<=layers\.)(\d+)\.narrow\.", r"\1.fc2."),
    (r"\.way_back\.", ".reverse_path."),
)


def renamed(content: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Give the entries of a group, and of those inside it, their names of version 2."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key == "recipe" and not group:
            found["optim"] = {OPTIM[each]: value[each] for each in value if each in OPTIM}
            found["train"] = {TRAIN[each]: value[each] for each in value if each in TRAIN}
            continue
        new = KEYS.get(group, {}).get(key, key)
        place = f"{group}.{new}" if group else new
        if isinstance(value, dict):
            found[new] = renamed(value, place)
        else:
            is_word = isinstance(value, bool | str)
            found[new] = VALUES.get((place, value), value) if is_word else value
    return {key: value for key, value in found.items() if value != {}}


def parameter_name(name: str) -> str:
    """Name of a parameter in version 2."""
    for pattern, new in PARAMETERS:
        name = re.sub(pattern, new, name)
    return name


def migrate_yaml(path: Path) -> None:
    """Rewrite an experiment; the comment lines at its top stay."""
    text = path.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    if not isinstance(content, dict) or not {"benchmark", "recipe", "model"} & content.keys():
        return
    new = renamed(content)
    if "version" in new:
        new["version"] = 2
    if new == content:
        return
    top = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    body = yaml.safe_dump(new, sort_keys=False, allow_unicode=True)
    path.write_text(top + body, encoding="utf-8")


def migrate_results(path: Path) -> None:
    """Rewrite what runs found."""
    text = path.read_text(encoding="utf-8")
    new = re.sub(r'(?m)^(\s*)"ending": ', r'\1"stop_reason": ', text)
    new = re.sub(r'(?m)^(\s*)"folder": ', r'\1"run_dir": ', new)
    if new != text:
        path.write_text(new, encoding="utf-8")


def migrate_weights(path: Path) -> None:
    """Rewrite names and header of a file of weights."""
    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        tensors = {parameter_name(name): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about = json.loads(metadata.get("graphmamba", "{}"))
    if about.get("format") != 1 or about.get("kind") != "weights":
        return
    about["experiment"] = renamed(about["experiment"]) | {"version": 2}
    about["options"] = renamed({"options": about.get("options", {})}).get("options", {})
    about["format"] = 2
    save_file(tensors, path, {"graphmamba": json.dumps(about)})


def main() -> None:
    """Migrate all files of the paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="+", type=Path)
    for given in parser.parse_args().path:
        for path in sorted(given.rglob("*")) if given.is_dir() else [given]:
            if path.suffix in {".yaml", ".yml"}:
                migrate_yaml(path)
            elif path.name == "results.json":
                migrate_results(path)
            elif path.suffix == ".safetensors":
                migrate_weights(path)


if __name__ == "__main__":
    main()
