"""Parsing: mappings and YAML to frozen dataclasses, with checked keys and types."""

import dataclasses
import difflib
import re
import types
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from graphmamba.errors import UserError

Config = TypeVar("Config")
ALIKE = 0.7
"""Share of letters from which one word may be meant for another: `patern` and `pattern`."""


OTHER_NAMES = {
    "learning_rate": "lr", "wd": "weight_decay", "opt": "optimizer", "scheduler": "schedule",
    "warmup_epochs": "warmup", "clip": "max_grad_norm", "grad_clip": "max_grad_norm",
    "gradient_clip_val": "max_grad_norm", "ema": "ema_decay", "batch": "batch_size",
    "bs": "batch_size", "criterion": "loss", "pos_weight": "positive_weights",
    "class_weight": "class_weights", "depth": "layers", "hidden": "channels",
    "hidden_dim": "channels", "hidden_size": "channels", "d_model": "channels", "dim": "channels",
    "d_state": "state", "d_conv": "width", "dt_rank": "rank", "drop": "dropout",
    "num_heads": "heads", "mpnn": "local_model", "random_seed": "seed", "gpu": "device",
    "gpus": "devices", "amp": "precision", "bf16": "precision", "fp16": "precision",
    "grad_accum": "accumulate_grad_batches",
    "gradient_accumulation_steps": "accumulate_grad_batches", "model": "name", "config": "name",
    "benchmark": "dataset", "label": "target", "root": "data_dir", "data_root": "data_dir",
    "out": "output", "folder": "run_dir", "out_dir": "run_dir", "output_dir": "run_dir",
    "save_dir": "run_dir",
}  # fmt: skip
"""What other programs call our keys, by the last part of each."""
OTHER_VALUES = {
    "acc": "accuracy", "auc": "roc_auc", "auroc": "roc_auc", "ap": "average_precision",
    "f1": "macro_f1", "mae": "mean_absolute_error", "r2_score": "r2", "matthews_corrcoef": "mcc",
    "bce": "binary_cross_entropy", "ce": "cross_entropy", "mean_squared_error": "mse",
}  # fmt: skip
"""What they call metrics and losses."""
MOST_LISTED = 12
"""Most choices that a message lists where one of them seems to be meant."""


def parse(kind: type[Config], content: Mapping[str, object], where: str) -> Config:
    """Make a dataclass from the entries of a mapping; what is missing keeps its default."""
    hints = get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for key in content:
        if key not in names:
            raise UserError(f"{where}: no key '{key}'; {suggest(str(key), names)}")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        is_needed = field.default is field.default_factory is dataclasses.MISSING
        if is_needed and field.name not in content:
            raise UserError(f"{where} must have a key '{field.name}', and it has not")
    values = {key: convert(value, hints[key], f"{where}: {key}") for key, value in content.items()}
    try:
        return kind(**values)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def suggest(word: str, words: Collection[str], otherwise: str | None = None) -> str:
    """Say which word may have been meant; where none is similar, which there are."""
    closest = similar(word, words)
    if closest is not None:
        return f"did you mean '{closest}'?"
    return otherwise or f"there is: {', '.join(words) or 'none'}"


def similar(word: str, words: Iterable[str]) -> str | None:
    """Find what may have been meant: by its last part, by another name for that, by spelling.

    So `learning_rate` is `optim.lr`, `lerning_rate` is too, and `cluster/gps` begins
    `cluster/gps-transformer`.
    """
    listed, last = list(words), _last(word)

    def fits(other: str) -> float:
        # of several `layers` those of the group that was typed, otherwise the outermost
        return -float(other.count(".")) if last == word else _ratio(word, other)

    def likeness(other: str) -> float:
        if "/" in word and other.startswith(word):
            return 1.0
        return max(_ratio(word, each) for each in (other, _last(other), other.partition("/")[0]))

    spelt = difflib.get_close_matches(last, OTHER_NAMES, cutoff=ALIKE)
    names = (last, OTHER_NAMES.get(last.lower()), *(OTHER_NAMES[other] for other in spelt))
    for place, name in enumerate(names):
        if named := [each for each in listed if _last(each) == name]:
            return max(named, key=fits)
        if place == 1:
            closest = max(listed, key=lambda each: (likeness(each), fits(each)), default="")
            if closest and likeness(closest) >= ALIKE:
                return closest
    return None


def _last(name: str) -> str:
    return re.split("[/.]", name)[-1]


def _ratio(word: str, other: str) -> float:
    return difflib.SequenceMatcher(None, word, other).ratio()


def words_in(text: str, where: str) -> list[str]:
    """Take several words from one line: `a,b` or, as YAML has it, `[a, b]`; words stay as typed."""
    import yaml

    if not (text.startswith("[") and text.endswith("]")):
        return [part.strip() for part in text.split(",")] if text else []
    try:
        # the loader that makes no numbers of digits, and no answers of yes and no
        found = yaml.load(text, yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise UserError(f"{where} must be words such as a,b or [a, b], got {text!r}")
    return found


def words_among(text: str, words: Collection[str], where: str) -> list[str]:
    """Take several words from one line, each one of those that there are."""
    found = words_in(text, where)
    for word in found:
        _convert_choice(word, tuple(words), where)
    if not found or len(set(found)) < len(found):
        raise UserError(f"{where} must be given, each once, got {text!r}")
    return found


def numbers_in(text: str, where: str) -> list[int]:
    """Take several whole numbers from one line, each once, such as seeds: `0,1,2`."""
    words = words_in(text, where)
    numbers = [int(word) for word in words if re.fullmatch(r"\d{1,20}", word)]
    # 0 and 00 are the same
    if not words or len(set(numbers)) < len(words):
        raise UserError(
            f"{where} must be whole numbers with commas between them, each once, got {text!r}"
        )
    return numbers


def read_yaml(text: str, where: str) -> object:
    """Read YAML without what is no plain data: aliases, dates, keys that are given twice."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except RecursionError:
        raise UserError(f"{where} must be YAML: it is nested too deeply") from None
    # explicit tags such as !!int are taken at their word, and fail in Python's own ways
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise UserError(f"{where} must be YAML: {error}") from error


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        # a date is a word like any other
        yaml_implicit_resolvers = {  # noqa: RUF012
            first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:timestamp"]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def compose_node(self, parent: object, index: object) -> object:
            # a few of them stand for more than any memory holds
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError(f"an alias is no value{self.peek_event().start_mark}")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[object, object]:
            keys = [(key.tag, key.value) for key, _ in node.value if isinstance(key.value, str)]
            key, count = Counter(keys).most_common(1)[0] if keys else (("", ""), 0)
            if count > 1:
                raise yaml.YAMLError(f"key '{key[1]}' is given twice{node.start_mark}")
            return super().construct_mapping(node, deep)

    return Loader


def convert(value: object, hint: object, where: str) -> object:
    """Check a value against a type; numbers may be written in any way that YAML knows."""
    kind, choices = get_origin(hint), get_args(hint)
    if kind in {Union, types.UnionType}:
        if value is None and types.NoneType in choices:
            return None
        # the first kind that fits; what fits none is told about the last
        *others, last = [each for each in choices if each is not types.NoneType]
        for each in others:
            with suppress(UserError):
                return convert(value, each, where)
        return convert(value, last, where)
    if kind is Literal:
        return _convert_choice(value, choices, where)
    if kind is tuple:
        return _convert_tuple(value, choices, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise UserError(f"{where} must hold keys and values, got {value!r}")
        return parse(hint, value, where)
    if hint is float:
        # YAML 1.1 reads 1e-3 as a word, since it has no point
        with suppress(ValueError, OverflowError):
            if isinstance(value, int | float | str) and not isinstance(value, bool):
                return float(value)
        raise UserError(f"{where} must be a number, got {value!r}")
    # True is an int to Python, but never what a person means by a number
    if type(value) is not (kind or hint):
        raise UserError(f"{where} must be {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


def _convert_choice(value: object, choices: tuple[object, ...], where: str) -> object:
    """Take one of the choices; for another word the nearest of them is named."""
    if value not in choices:
        word = str(value)
        closest = OTHER_VALUES.get(word.lower())
        closest = closest if closest in choices else similar(word, map(str, choices))
        if closest and len(choices) > MOST_LISTED:
            raise UserError(f"{where} must not be {value!r}; did you mean '{closest}'?")
        meant = f"; did you mean '{closest}'?" if closest else ""
        listed = ", ".join(map(repr, choices))
        raise UserError(f"{where} must be one of {listed}, got {value!r}{meant}")
    return value


def _convert_tuple(value: object, kinds: tuple[Any, ...], where: str) -> tuple[object, ...]:
    """A list, or on one line: words with commas between them, in brackets or not."""
    if isinstance(value, str):
        words = words_in(value, where)
        value = words if kinds[0] is str else [read_yaml(word, where) for word in words]
    elif not isinstance(value, list | tuple):
        value = [value]
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(value) != len(kinds):
        raise UserError(f"{where} must have {len(kinds)} entries, got {value!r}")
    pairs = zip(value, kinds, strict=True)
    return tuple(
        convert(str(entry) if kind is str else entry, kind, where) for entry, kind in pairs
    )
