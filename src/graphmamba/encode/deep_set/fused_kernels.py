"""Triton kernels of a small network on each frequency of a node, and of its gradients.

A tile holds T nodes; the frequencies come one after another, H hidden and C final channels each.
Loops have one stage: to fetch ahead costs more instructions than the few numbers of a node wait.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def load_pair(
    vectors_ptr, values_ptr, signs_ptr, node, f, nodes, VECTOR_STRIDE: tl.constexpr,
    VALUE_STRIDE: tl.constexpr, HAS_SIGNS: tl.constexpr,
):  # fmt: skip
    """Return entry and eigenvalue of each node, 0 where it has none, and whether it has."""
    inside, node = node < nodes, node.to(tl.int64)
    entry = tl.load(vectors_ptr + node * VECTOR_STRIDE + f, mask=inside, other=float("nan"))
    value = tl.load(values_ptr + node * VALUE_STRIDE + f, mask=inside, other=0.0)
    is_there = entry == entry  # noqa: PLR0124
    if HAS_SIGNS:
        entry *= tl.load(signs_ptr + f)
    return tl.where(is_there, entry, 0.0), tl.where(is_there, value, 0.0), is_there


@no_type_check
@triton.jit
def load_maps(
    first_ptr, first_bias_ptr, last_ptr, last_bias_ptr, HIDDEN: tl.constexpr,
    CHANNELS: tl.constexpr, H: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Return both columns of the first map, its bias, the second map and its bias; 0 outside."""
    h, c = tl.arange(0, H), tl.arange(0, C)
    of_entry = tl.load(first_ptr + 2 * h, mask=h < HIDDEN, other=0.0)
    of_value = tl.load(first_ptr + 2 * h + 1, mask=h < HIDDEN, other=0.0)
    first_bias = tl.load(first_bias_ptr + h, mask=h < HIDDEN, other=0.0)
    inside = (c < CHANNELS)[:, None] & (h < HIDDEN)[None, :]
    last = tl.load(last_ptr + c[:, None] * HIDDEN + h[None, :], mask=inside, other=0.0)
    last_bias = tl.load(last_bias_ptr + c, mask=c < CHANNELS, other=0.0)
    return of_entry, of_value, first_bias, last, last_bias


@no_type_check
@triton.jit
def apply_maps(
    entry, value, is_there, of_entry, of_value, first_bias, last, last_bias,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return hidden and final rows; the latter are 0 where the frequency is not there."""
    hidden = entry[:, None] * of_entry[None, :] + value[:, None] * of_value[None, :]
    hidden += first_bias[None, :]
    # Not a maximum, which would hide a NaN.
    hidden = tl.where(hidden < 0.0, 0.0, hidden)
    rows = tl.dot(hidden, tl.trans(last), input_precision=PRECISION) + last_bias[None, :]
    return hidden, tl.where((rows < 0.0) | ~is_there[:, None], 0.0, rows)


@no_type_check
@triton.jit(do_not_specialize=["nodes"])
def deep_set_fwd_kernel(
    vectors_ptr, values_ptr, signs_ptr, first_ptr, first_bias_ptr, last_ptr, last_bias_ptr, out_ptr,
    nodes, FREQUENCIES: tl.constexpr, VECTOR_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr,
    HAS_SIGNS: tl.constexpr, HIDDEN: tl.constexpr, CHANNELS: tl.constexpr, H: tl.constexpr,
    C: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the sums of T nodes."""
    node = tl.program_id(0) * T + tl.arange(0, T)
    of_entry, of_value, first_bias, last, last_bias = load_maps(
        first_ptr, first_bias_ptr, last_ptr, last_bias_ptr, HIDDEN, CHANNELS, H, C
    )
    total = tl.zeros([T, C], tl.float32)
    for f in tl.range(0, FREQUENCIES, num_stages=1):
        entry, value, is_there = load_pair(
            vectors_ptr, values_ptr, signs_ptr, node, f, nodes, VECTOR_STRIDE, VALUE_STRIDE,
            HAS_SIGNS,
        )  # fmt: skip
        _, rows = apply_maps(
            entry, value, is_there, of_entry, of_value, first_bias, last, last_bias, PRECISION
        )
        total += rows
    c = tl.arange(0, C)
    at = node.to(tl.int64)[:, None] * CHANNELS + c[None, :]
    tl.store(out_ptr + at, total, mask=(node < nodes)[:, None] & (c < CHANNELS)[None, :])


@no_type_check
@triton.jit(do_not_specialize=["nodes", "tiles"])
def deep_set_bwd_kernel(
    vectors_ptr, values_ptr, signs_ptr, first_ptr, first_bias_ptr, last_ptr, last_bias_ptr,
    grad_ptr, lines_ptr, nodes, tiles, GRAD_STRIDE: tl.constexpr, FREQUENCIES: tl.constexpr,
    VECTOR_STRIDE: tl.constexpr, VALUE_STRIDE: tl.constexpr, HAS_SIGNS: tl.constexpr,
    HIDDEN: tl.constexpr, CHANNELS: tl.constexpr, H: tl.constexpr, C: tl.constexpr,
    T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write a line: the gradients of both maps and biases from `tiles` tiles of nodes."""
    program, h, c = tl.program_id(0).to(tl.int64), tl.arange(0, H), tl.arange(0, C)
    of_entry, of_value, first_bias, last, last_bias = load_maps(
        first_ptr, first_bias_ptr, last_ptr, last_bias_ptr, HIDDEN, CHANNELS, H, C
    )
    by_entry, by_value = tl.zeros([T, H], tl.float32), tl.zeros([T, H], tl.float32)
    by_one, by_last = tl.zeros([T, H], tl.float32), tl.zeros([C, H], tl.float32)
    by_last_bias = tl.zeros([T, C], tl.float32)
    for step in tl.range(0, tiles * FREQUENCIES, num_stages=1):
        # One loop over tiles and frequencies: a node's gradient comes from a cache but once.
        f, node = step % FREQUENCIES, (program * tiles + step // FREQUENCIES) * T + tl.arange(0, T)
        at = node[:, None] * GRAD_STRIDE + c[None, :]
        inside = (node < nodes)[:, None] & (c < CHANNELS)[None, :]
        grad = tl.load(grad_ptr + at, mask=inside, other=0.0)
        entry, value, is_there = load_pair(
            vectors_ptr, values_ptr, signs_ptr, node, f, nodes, VECTOR_STRIDE, VALUE_STRIDE,
            HAS_SIGNS,
        )  # fmt: skip
        hidden, rows = apply_maps(
            entry, value, is_there, of_entry, of_value, first_bias, last, last_bias, PRECISION
        )
        grad = tl.where(rows > 0.0, grad, 0.0)
        by_last_bias += grad
        by_last = tl.dot(tl.trans(grad), hidden, by_last, input_precision=PRECISION)
        back = tl.dot(grad, last, input_precision=PRECISION)
        back = tl.where(hidden > 0.0, back, 0.0)
        by_entry += back * entry[:, None]
        by_value += back * value[:, None]
        by_one += back
    lines_ptr += program * (3 * HIDDEN + CHANNELS * HIDDEN + CHANNELS)
    tl.store(lines_ptr + 2 * h, tl.sum(by_entry, axis=0), mask=h < HIDDEN)
    tl.store(lines_ptr + 2 * h + 1, tl.sum(by_value, axis=0), mask=h < HIDDEN)
    tl.store(lines_ptr + 2 * HIDDEN + h, tl.sum(by_one, axis=0), mask=h < HIDDEN)
    inside = (c < CHANNELS)[:, None] & (h < HIDDEN)[None, :]
    tl.store(lines_ptr + 3 * HIDDEN + c[:, None] * HIDDEN + h[None, :], by_last, mask=inside)
    at = 3 * HIDDEN + CHANNELS * HIDDEN + c
    tl.store(lines_ptr + at, tl.sum(by_last_bias, axis=0), mask=c < CHANNELS)
