"""Functions of whole registers, held to a wider type."""

from collections.abc import Callable
from math import factorial

import numpy as np
import pytest
from numba import njit

from graphmamba.ops import cpu_vectors
from graphmamba.ops.cpu_vectors import load, store

Function = Callable[[np.ndarray], np.ndarray]


def over_arrays(function: Callable[..., object]) -> Function:
    """Apply a function of a register to all of an array."""

    @njit
    def run(x, out):
        for start in range(0, len(x), 64 // x.itemsize):
            store(out, start, function(load(x, start)))

    def call(x: np.ndarray) -> np.ndarray:
        padded = np.zeros(-(-len(x) // 16) * 16, x.dtype)
        padded[: len(x)] = x
        out = np.empty_like(padded)
        run(padded, out)
        return out[: len(x)]

    return call


growth = njit(lambda x: cpu_vectors.hold(x)[0])
quotient = njit(lambda x: cpu_vectors.hold(x)[1])
slope = njit(lambda x: cpu_vectors.hold_slope(x, growth(x), quotient(x)))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def quotient_truth(x: np.ndarray) -> np.ndarray:
    return np.divide(np.expm1(x), x, out=np.ones_like(x), where=x != 0)


def slope_truth(x: np.ndarray) -> np.ndarray:
    """Its power series near 0, elsewhere the closed form, which is good where nothing cancels."""
    series = sum(x**k / (np.longdouble(factorial(k)) * (k + 2)) for k in range(30))
    near = np.abs(x) < 2
    safe = np.where(near, 1, x)
    return np.where(near, series, (np.exp(x) - quotient_truth(x)) / safe)


FUNCTIONS = {
    "exp": (cpu_vectors.exp, np.exp, 87, 1.5),
    "exp2": (cpu_vectors.exp2, np.exp2, 126, 1.5),
    "sigmoid": (cpu_vectors.sigmoid, sigmoid, 80, 3.0),
    "silu": (cpu_vectors.silu, lambda x: x * sigmoid(x), 80, 3.0),
    "softplus": (cpu_vectors.softplus, lambda x: np.where(x > 20, x, np.log1p(np.exp(x))), 80, 2.5),
    "softplus slope": (
        cpu_vectors.softplus_slope,
        lambda x: np.where(x > 20, 1, sigmoid(x)),
        80,
        3,
    ),
    "hold: growth": (growth, np.exp, 85, 1.5),
    "hold: quotient": (quotient, quotient_truth, 85, 2.5),
    "hold: slope": (slope, slope_truth, 20, 6.0),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_right_to_the_last_places(name: str, dtype: type) -> None:
    if np.finfo(np.longdouble).eps >= np.finfo(dtype).eps:
        pytest.skip("needs a wider type to judge by")
    function, truth, reach, allowed = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    parts = [rng.uniform(-reach, reach, 20_000), rng.normal(0, 1, 20_000), rng.normal(0, 1e-3, 999)]
    x = np.concatenate([*parts, [0.0, -0.0, 1.0, -1.0, 1e-30, -1e-30]]).astype(dtype)
    expected = truth(x.astype(np.longdouble))
    ulps = np.abs(over_arrays(function)(x) - expected) / np.spacing(np.abs(expected).astype(dtype))
    assert ulps.max() <= allowed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("function", "at_minus_infinity", "at_infinity"),
    [
        (cpu_vectors.exp, 0, np.inf),
        (cpu_vectors.exp2, 0, np.inf),
        (cpu_vectors.softplus, 0, np.inf),
        (cpu_vectors.softplus_slope, 0, 1),
        (growth, 0, np.inf),
    ],
)
def test_limits_hold_and_nan_stays(
    function: Callable[..., object], at_minus_infinity: float, at_infinity: float, dtype: type
) -> None:
    x = np.array([-np.inf, -1e30, np.inf, 1e30, np.nan], dtype)
    # A payload in the low bits must not be taken for an exponent.
    whole = np.uint32 if dtype == np.float32 else np.uint64
    odd_nan = np.array([~whole(0)], whole).view(dtype)
    out = over_arrays(function)(np.concatenate([x, odd_nan]))
    assert (out[:2] == at_minus_infinity).all()
    assert np.isnan(out[4:]).all()
    if function is cpu_vectors.softplus:
        assert out[2] == np.inf
        assert out[3] == x[3]
    else:
        assert (out[2:4] == at_infinity).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_zero_order_hold_does_to_an_input_overflows_without_a_nan(dtype: type) -> None:
    # The power of two in it is infinite a little before the whole is.
    x = (np.finfo(dtype).maxexp + np.array([-0.4, -0.1, 0.1, 0.4, 10])) * np.log(2)
    assert (over_arrays(quotient)(np.append(x, 1e30).astype(dtype)) > 1e30).all()
