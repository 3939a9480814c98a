"""Triton kernels that make batches of fixed shapes, the padding graph included, in two launches."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.data.gather_triton_kernels import job_of, owner_of, read_values, write_values

FIELDS = tl.constexpr(13)
"""Numbers of a job; see `static_batch`."""
REPEAT, PAIRS, ORDER, BEGIN, OWNER = (tl.constexpr(task) for task in (1, 2, 3, 4, 5))
"""As in `static_batch`; a test compares them."""
GRAPHS = tl.constexpr(2)
"""The table with one row for each place, padding graphs included."""


@no_type_check
@triton.jit(do_not_specialize=["graphs", "slots", "tables"])
def place_kernel(
    ids_ptr, bounds_ptr, capacity_ptr, plan_ptr, graphs, slots, tables, PLACES: tl.constexpr
):  # fmt: skip
    """Say where the rows of each graph are in a table, and where they go in the batch.

    Args:
        ids_ptr: Numbers of the graphs, -1 for empty places.
        bounds_ptr: First row of every graph, and the number of rows, for each table.
        capacity_ptr: Rows of a batch, for each table.
        plan_ptr: What is written; see `data.gather.Plan`.
        graphs: Graphs of the store.
        slots: Places of a batch, without the padding graph's.
        tables: Tables of the store.
        PLACES: All places, rounded up to a power of two.
    """
    table = tl.program_id(0)
    place = tl.arange(0, PLACES)
    places = slots + 1
    inside = place < places
    number = tl.load(ids_ptr + place, mask=place < slots, other=-1)
    known = tl.maximum(number, 0)
    bounds = bounds_ptr + table.to(tl.int64) * (graphs + 1)
    start = tl.load(bounds + known, mask=inside, other=0)
    count = tl.load(bounds + known + 1, mask=inside, other=0) - start
    count = tl.where((number < 0) & (table != GRAPHS), 0, count)
    count = tl.where(inside, count, 0)
    begin = tl.cumsum(count, axis=0) - count

    starts = plan_ptr + 2 * places + table * places
    begins = plan_ptr + 2 * places + tables * places + table * (places + 1)
    tl.store(starts + place, start, mask=inside)
    tl.store(begins + place, begin, mask=inside)
    tl.store(begins + places, tl.load(capacity_ptr + table))
    if table == 0:
        tl.store(plan_ptr + place, number, mask=inside)
        tl.store(plan_ptr + places + place, known, mask=inside)
        real = tl.sum(((number >= 0) & inside).to(tl.int64), axis=0)
        tl.store(plan_ptr + 2 * places + tables * (2 * places + 1), real)


@no_type_check
@triton.jit(do_not_specialize=["out", "jobs", "slots", "tables", "rounds"])
def static_gather_kernel(
    jobs_ptr, plan_ptr, out, jobs, slots, tables, rounds, JOBS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write `BLOCK` values of one column.

    Args:
        jobs_ptr: The jobs.
        plan_ptr: What `place_kernel` wrote.
        out: Address that all columns are written after.
        jobs: How many jobs there are.
        slots: Places of a batch, without the padding graph's.
        tables: Tables of the store.
        rounds: How often `slots + 1` can be halved.
        JOBS: `jobs`, rounded up to a power of two.
        BLOCK: Values of a program.
    """
    program = tl.program_id(0)
    job = job_of(jobs_ptr, program, jobs, FIELDS, 12, JOBS)
    task, table, size = tl.load(job), tl.load(job + 1), tl.load(job + 2)
    width, source, shift = tl.load(job + 3).to(tl.int32), tl.load(job + 4), tl.load(job + 5)
    written, is_label, fill = tl.load(job + 6), tl.load(job + 7), tl.load(job + 8)
    has_rows, offset, values = tl.load(job + 9), tl.load(job + 10), tl.load(job + 11)

    places = slots + 1
    starts = plan_ptr + 2 * places + table * places
    all_begins = plan_ptr + 2 * places + tables * places
    begins = all_begins + table * (places + 1)
    at = (program - tl.load(job + 12).to(tl.int32)) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    row = at // width
    # Past the end of the column there is no graph to look up.
    owner = tl.where(inside, owner_of(begins, row, slots, rounds), 0)
    graph = tl.load(plan_ptr + owner)
    is_padding = graph < 0

    place = tl.load(starts + owner) + row - tl.load(begins + owner)
    place = tl.where(task == REPEAT, graph, place)
    # Padding rows are copies of the first row, which is as good as any.
    place = tl.where(is_padding, 0, place)
    is_read = inside & (at < has_rows * values)
    value = read_values(source, place * width + at % width, is_read, size)
    # What was not read is not defined.
    value = tl.where(is_read, value, 0)
    if shift > 0:
        value += tl.load(all_begins + (shift - 1) * (places + 1) + owner)

    if task == OWNER:
        value = owner.to(tl.int64)
    if task == ORDER:
        value = tl.where(is_padding, row.to(tl.int64), value)
    if (task == PAIRS) | (task == BEGIN):
        # Pairs of the padding graph are spread evenly over its nodes, ascending.
        others = all_begins + tl.where(task == BEGIN, 1, table) * (places + 1)
        real_nodes, real_pairs = tl.load(all_begins + slots), tl.load(others + slots)
        padding_nodes = tl.maximum(tl.load(all_begins + places) - real_nodes, 1)
        padding_pairs = tl.load(others + places) - real_pairs
        if task == PAIRS:
            spread = (row - real_pairs) * padding_nodes // tl.maximum(padding_pairs, 1) + real_nodes
        else:
            below = (row - real_nodes) * padding_pairs + padding_nodes - 1
            spread = below // padding_nodes + real_pairs
        value = tl.where(is_padding, spread, value)
    value = tl.where(is_padding & (is_label > 0), fill, value)
    write_values(out + offset, at, value, inside, written)
