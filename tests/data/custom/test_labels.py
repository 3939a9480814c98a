"""What labels are is read from their values, or stated."""

import pytest
import torch

from graphmamba.data.custom import LabelRule
from graphmamba.data.custom.labels import number_labels, read_labels
from graphmamba.errors import UserError
from tests.helpers.typecheck import typecheck_off


def where(row: int) -> str:
    return f"line {row + 2}"


@pytest.mark.parametrize(
    ("cells", "kind", "names"),
    [
        ([["b", "a", "b"]], "classes", ("a", "b")),
        ([["10", "9", "10"]], "classes", ("9", "10")),
        ([["1", "", "0"]], "classes", ("0", "1")),
        ([["1.0", "0.0", "1.0", ""]], "classes", ("0", "1")),
        ([["1.0", "2", "1"]], "classes", ("1", "2")),
        ([["01", "02"]], "classes", ("01", "02")),
        ([[f"{n % 30}.0" for n in range(60)]], "classes", tuple(map(str, range(30)))),
        ([["-1", "1", "1"]], "classes", ("-1", "1")),
        ([["-1", "0", "1"]], "classes", ("-1", "0", "1")),
        ([["2021", "2019", "2021", "2019"]], "classes", ("2019", "2021")),
        ([["True", "False", "True"]], "classes", ("False", "True")),
        ([["3", "NaN", "7", "?"]], "classes", ("3", "7")),
        ([["safe", "nan", "NA"]], "classes", ("NA", "safe")),
        ([["1.5", "None", "-0.5"]], "regression", ("y0",)),
        ([[*map(str, range(5, 35))]], "regression", ("y0",)),
        ([["300.0", "310.0", ""]], "regression", ("y0",)),
        ([[f"{n}.0" for n in range(0, 63, 3)]], "regression", ("y0",)),
        ([[*map(str, range(1001))] * 1 + [*map(str, range(1001))]], "regression", ("y0",)),
        ([["yes", "no", ""], ["no", "Yes", "no"]], "multi-label", ("y0", "y1")),
        ([["True", ""], ["False", "True"]], "multi-label", ("y0", "y1")),
        ([["-1", "1"], ["1", ""]], "multi-label", ("y0", "y1")),
        ([["1.0", "2.5"]], "regression", ("y0",)),
        ([["1e3", "-2"]], "regression", ("y0",)),
        ([["0", "1"], ["1", ""]], "multi-label", ("y0", "y1")),
        ([["0", "2"], ["1", "1"]], "regression", ("y0", "y1")),
    ],
)
def test_the_kind_is_read(cells: list[list[str]], kind: str, names: tuple[str, ...]) -> None:
    columns = {f"y{place}": column for place, column in enumerate(cells)}
    labels = read_labels(columns, LabelRule(), where)
    assert (labels.kind, labels.names) == (kind, names)
    missing = {"", "nan", "NaN", "None", "?"}
    is_missing = torch.tensor(
        [[cell in missing for cell in row] for row in zip(*cells, strict=True)]
    )
    if kind == "classes":
        assert torch.equal(labels.values == -1, is_missing[:, 0])
    else:
        assert torch.equal(labels.values.isnan(), is_missing)


def test_a_number_is_the_same_class_with_decimals() -> None:
    assert read_labels({"y": ["1.0", "1", "", "0."]}, LabelRule(), where).values.tolist() == [
        1, 1, -1, 0,
    ]  # fmt: skip
    for rule in (LabelRule(classes=3), LabelRule(classes=("0", "1", "2"))):
        labels = read_labels({"y": ["2.0", "", "0.0"]}, rule, where)
        assert (labels.values.tolist(), labels.names) == ([2, -1, 0], ("0", "1", "2"))
    versions = read_labels({"y": ["1.0", "1"]}, LabelRule(classes=("1", "1.0")), where)
    assert versions.values.tolist() == [1, 0]
    mixed = read_labels({"y": ["1.0", "1", "b"]}, LabelRule("classes"), where)
    assert mixed.names == ("1", "1.0", "b")


def test_stated_classes_keep_their_order() -> None:
    labels = read_labels({"y": ["low", "high"]}, LabelRule(classes=("low", "high", "top")), where)
    assert labels.values.tolist() == [0, 1]
    assert len(labels.names) == 3
    numbered = read_labels({"y": ["3", "0"]}, LabelRule(classes=4), where)
    assert numbered.values.tolist() == [3, 0]


@pytest.mark.parametrize(
    ("cells", "rule", "message"),
    [
        (["0", "4"], LabelRule(classes=4), "line 3: y must be one of '0', .* got '4'"),
        (["1", "b"], LabelRule(), "line 3: y must be all numbers or all words, got 'b'"),
        (["0", "2"], LabelRule("multi-label"), "line 3: y must be 0 or 1, got '2'"),
        (["0.5", "-inf"], LabelRule(), "line 3: y must be a finite number of 32 bits, got '-inf'"),
        (["", "b", "b"], LabelRule(), "y must hold 2 classes at least, got 'b' in all rows"),
        (["", ""], LabelRule("regression"), "line 2: 'y' must hold a label somewhere, got none"),
        (["3", "3"], LabelRule("classes"), "line 2: y must hold 2 classes at least, got '3'"),
        ([str(n) for n in range(1001)], LabelRule("classes"), "at most 1000 classes, got 1001"),
        (["2", "1", "01"], LabelRule(), "y must be spelt in one way, got '1' beside '01'"),
    ],
)
def test_what_is_out_of_range_is_reported(cells: list[str], rule: LabelRule, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_labels({"y": cells}, rule, where)


@pytest.mark.parametrize(
    ("kind", "classes", "message"),
    [
        ("regression", 3, "classes must be left out"),
        (None, 1, "classes must be at least 2, got 1"),
        (None, ("a",), "classes must be 2 different names at least"),
        (None, "noyes", r"classes must be int or tuple\[str, ...\] or None, got 'noyes'"),
        ("words", None, "task must be one of None, 'classes', 'regression', 'multi-label'"),
    ],
)
def test_rules_are_checked(kind: object, classes: object, message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        LabelRule(kind, classes)


@pytest.mark.parametrize(
    ("y", "names", "values"),
    [
        (torch.tensor([-1, 1, 1]), ("-1", "1"), [0, 1, 1]),
        (torch.tensor([-1, 0, 1, 2]), ("0", "1", "2"), [-1, 0, 1, 2]),
        (torch.tensor([-5, -1, 3, -5]), ("-5", "-1", "3"), [0, 1, 2, 0]),
        (torch.tensor([100, 0, 200, 0, 100, 200]), ("0", "100", "200"), [1, 0, 2, 0, 1, 2]),
        (torch.tensor([0, 3, 1]), ("0", "1", "2", "3"), [0, 3, 1]),
        (torch.tensor([0.0, 1.0, torch.nan]), ("0", "1"), [0, 1, -1]),
        (torch.tensor([1.0, -1.0]), ("-1", "1"), [1, 0]),
        (torch.tensor([True, False]), ("False", "True"), [1, 0]),
    ],
)
def test_numbers_are_classes_as_a_person_means_them(
    y: torch.Tensor, names: tuple[str, ...], values: list[int]
) -> None:
    found = number_labels(y, LabelRule(), where)
    assert (found.kind, found.names, found.values.tolist()) == ("classes", names, values)
    # graphs that come later hold some of them alone
    again = number_labels(y[:1], LabelRule("classes", names), where)
    assert again.values.tolist() == values[:1]


def test_answers_as_numbers_of_either_sign() -> None:
    for y in (torch.tensor([[-1, 1], [1, 1]]), torch.tensor([[-1.0, 1.0], [1.0, torch.nan]])):
        found = number_labels(y, LabelRule(), where)
        assert found.kind == "multi-label"
        assert found.values[:, 0].tolist() == [0, 1]
    assert number_labels(torch.tensor([1.0, 2.0]), LabelRule(), where).kind == "regression"


def test_a_column_without_any_target_is_named() -> None:
    with pytest.raises(UserError, match="'y1' must hold a label somewhere, got none"):
        number_labels(torch.tensor([[0.5, torch.nan], [1.5, torch.nan]]), LabelRule(), where)
    with pytest.raises(UserError, match="line 2: 'b' must hold a label somewhere, got none"):
        read_labels({"a": ["0.5", "1"], "b": ["", "nan"]}, LabelRule(), where)
