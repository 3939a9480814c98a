"""A Triton kernel that writes all columns of a batch in one launch."""

from typing import no_type_check

import triton
import triton.language as tl

FIELDS = tl.constexpr(9)
"""Numbers of a job: the six of `gather.Jobs`, the address to write to, its values, and the
first program that works on it."""
REPEAT, ADD, OWNER = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
"""As in `gather`; a test compares them."""


@no_type_check
@triton.jit
def owner_of(ptr, row, graphs, rounds):
    """Return the graph of each row, by halving: it counts the graphs that end up to there."""
    low = tl.zeros_like(row)
    high = low + graphs
    for _ in range(rounds):
        middle = (low + high) // 2
        is_open = low < high
        end = tl.load(ptr + 1 + middle, mask=is_open, other=0)
        goes_up = is_open & (end <= row)
        high = tl.where(is_open & (end > row), middle, high)
        low = tl.where(goes_up, middle + 1, low)
    return low


@no_type_check
@triton.jit
def read_values(address, at, inside, size):
    """Load numbers of `size` bytes as int64; a single byte has no sign."""
    value = tl.zeros_like(at)
    if size == 1:
        value = tl.load(address.to(tl.pointer_type(tl.uint8)) + at, mask=inside).to(tl.int64)
    elif size == 2:
        value = tl.load(address.to(tl.pointer_type(tl.int16)) + at, mask=inside).to(tl.int64)
    elif size == 4:
        value = tl.load(address.to(tl.pointer_type(tl.int32)) + at, mask=inside).to(tl.int64)
    else:
        value = tl.load(address.to(tl.pointer_type(tl.int64)) + at, mask=inside)
    return value


@no_type_check
@triton.jit
def write_values(address, at, value, inside, size):
    """Store numbers in `size` bytes."""
    if size == 1:
        tl.store(address.to(tl.pointer_type(tl.uint8)) + at, value.to(tl.uint8), mask=inside)
    elif size == 2:
        tl.store(address.to(tl.pointer_type(tl.int16)) + at, value.to(tl.int16), mask=inside)
    elif size == 4:
        tl.store(address.to(tl.pointer_type(tl.int32)) + at, value.to(tl.int32), mask=inside)
    else:
        tl.store(address.to(tl.pointer_type(tl.int64)) + at, value, mask=inside)


@no_type_check
@triton.jit
def job_of(
    jobs_ptr, program, jobs, FIELDS: tl.constexpr, FIRST: tl.constexpr, JOBS: tl.constexpr
):  # fmt: skip
    """Point to the job that a program works on; field FIRST says which program begins a job."""
    number = tl.arange(0, JOBS)
    firsts = tl.load(jobs_ptr + number * FIELDS + FIRST, mask=number < jobs, other=1 << 40)
    return jobs_ptr + (tl.sum((firsts <= program).to(tl.int32), axis=0) - 1) * FIELDS


@no_type_check
@triton.jit(do_not_specialize=["jobs", "graphs", "tables", "rounds"])
def gather_kernel(
    packed, jobs, graphs, tables, rounds, JOBS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write `BLOCK` values of one column.

    Args:
        packed: Jobs, graphs, `starts` and `ptrs`, one after another; see `gather_triton.pack`.
        jobs: How many jobs there are.
        graphs: How many graphs the batch has.
        tables: How many tables the store has.
        rounds: How often `graphs + 1` can be halved.
        JOBS: `jobs`, rounded up to a power of two.
        BLOCK: Values of a program.
    """
    program = tl.program_id(0)
    job = job_of(packed, program, jobs, FIELDS, 8, JOBS)
    task, table, size = tl.load(job), tl.load(job + 1), tl.load(job + 2)
    width, source, shift = tl.load(job + 3).to(tl.int32), tl.load(job + 4), tl.load(job + 5)
    out, values, first = tl.load(job + 6), tl.load(job + 7), tl.load(job + 8)

    ids = packed + jobs * FIELDS
    starts = ids + graphs + table * graphs
    all_ptrs = ids + graphs + tables * graphs
    ptr = all_ptrs + table * (graphs + 1)

    at = (program - first.to(tl.int32)) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    row = at // width
    owner = owner_of(ptr, row, graphs, rounds)
    # Past the end of the column there is no graph to look up.
    owner = tl.where(inside, owner, 0)
    value = owner.to(tl.int64)
    if task != OWNER:
        place = tl.load(starts + owner) + row - tl.load(ptr + owner)
        if task == REPEAT:
            place = tl.load(ids + owner)
        value = read_values(source, place * width + at % width, inside, size)
        if shift > 0:
            value += tl.load(all_ptrs + (shift - 1) * (graphs + 1) + owner)
    # What is added to or made here is an int64, whatever it was kept as.
    if task >= ADD:
        size = size * 0 + 8
    write_values(out, at, value, inside, size)
