"""Writes all columns of a batch in one call, graph by graph, at the speed of the memory."""

from typing import no_type_check

import numpy as np
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from graphmamba.data.compiled import helper, kernel
from graphmamba.data.gather_jobs import ADD, COPY, OWNER

LINE = 64
AHEAD = 3
"""Graphs between the one whose rows are asked for and the one that is copied."""
_FAR = 1 << 56
"""More rows than there are: an address has no length."""


@intrinsic
@no_type_check
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@intrinsic
@no_type_check
def _ask_for(typing_context, address):
    """Have a cache line brought near, to the larger caches only: it is not needed at once."""

    def generate(context, builder, signature, arguments):
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, number, number, number])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        pointer = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        # to be read, needed again but little, data
        builder.call(prefetch, [pointer, number(0), number(1), number(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@helper
@no_type_check
def _ask_for_rows(address, size, starts, ptr, graph):
    """Ask for the rows of a graph, which are few and far from those of the last one."""
    if graph < starts.shape[0]:
        begin = address + starts[graph] * size
        for place in range(0, (ptr[graph + 1] - ptr[graph]) * size, LINE):
            _ask_for(begin + place)


@helper
@no_type_check
def _at(address, dtype):
    return carray(_pointer(address), (_FAR,), dtype)


# Slices instead of sums of indices: what counts from zero needs no test for negative numbers, and
# only loops without tests are vectorised.


@helper
@no_type_check
def _copy(address, source, out, width, starts, ptr):
    for graph in range(-AHEAD, starts.shape[0]):
        _ask_for_rows(address, width * source.itemsize, starts, ptr, graph + AHEAD)
        if graph < 0:
            continue
        count = (ptr[graph + 1] - ptr[graph]) * width
        begin, put = starts[graph] * width, ptr[graph] * width
        read, written = source[begin : begin + count], out[put : put + count]
        for place in range(count):
            written[place] = read[place]


@helper
@no_type_check
def _repeat(source, out, width, ids, ptr):
    for graph in range(ids.shape[0]):
        count = (ptr[graph + 1] - ptr[graph]) * width
        written = out[ptr[graph] * width : ptr[graph] * width + count]
        read = source[ids[graph] * width : (ids[graph] + 1) * width]
        for place in range(min(width, count)):
            written[place] = read[place]
        done = width
        # Twice as many rows each time: long copies are fast ones.
        while done < count:
            ready, more = written[:done], written[done : min(2 * done, count)]
            for place in range(more.shape[0]):
                more[place] = ready[place]
            done *= 2


@helper
@no_type_check
def _add(address, source, out, width, starts, ptr, before, is_moved):
    for graph in range(-AHEAD, starts.shape[0]):
        _ask_for_rows(address, width * source.itemsize, starts, ptr, graph + AHEAD)
        if graph < 0:
            continue
        count, by = (ptr[graph + 1] - ptr[graph]) * width, before[graph] * is_moved
        begin, put = starts[graph] * width, ptr[graph] * width
        read, written = source[begin : begin + count], out[put : put + count]
        for place in range(count):
            written[place] = read[place] + by


@kernel
@no_type_check
def look_up(bounds, ids, starts, ptrs):
    """Find the rows of the graphs `ids`; writes `starts` and `ptrs`, as `fill` reads them."""
    for table in range(bounds.shape[0]):
        rows = 0
        ptrs[table, 0] = 0
        for place in range(ids.shape[0]):
            begin = bounds[table, ids[place]]
            rows += bounds[table, ids[place] + 1] - begin
            starts[table, place] = begin
            ptrs[table, place + 1] = rows


@kernel
@no_type_check
def fill(jobs, outs, ids, starts, ptrs):
    """Write every column of the graphs `ids`.

    Args:
        jobs: [columns, 6] what to do, as `gather_jobs.Jobs` says.
        outs: [columns] addresses to write to.
        ids: [graphs] the graphs.
        starts: [tables, graphs] first row of each graph in its table.
        ptrs: [tables, graphs + 1] first row of each graph in the batch.
    """
    for number in range(jobs.shape[0]):
        task, table, size, width, source, shift = jobs[number]
        start, ptr, out = starts[table], ptrs[table], outs[number]
        before, is_moved = ptrs[max(shift - 1, 0)], min(shift, 1)
        if task == OWNER:
            for graph in range(ids.shape[0]):
                _at(out, np.int64)[ptr[graph] : ptr[graph + 1]] = graph
        elif task == ADD:
            wide = _at(out, np.int64)
            if size == 1:
                _add(source, _at(source, np.uint8), wide, width, start, ptr, before, is_moved)
            elif size == 2:
                _add(source, _at(source, np.int16), wide, width, start, ptr, before, is_moved)
            elif size == 4:
                _add(source, _at(source, np.int32), wide, width, start, ptr, before, is_moved)
            else:
                _add(source, _at(source, np.int64), wide, width, start, ptr, before, is_moved)
        elif task == COPY:
            if size == 8:
                _copy(source, _at(source, np.int64), _at(out, np.int64), width, start, ptr)
            elif size == 4:
                _copy(source, _at(source, np.int32), _at(out, np.int32), width, start, ptr)
            else:
                _copy(source, _at(source, np.uint8), _at(out, np.uint8), width, start, ptr)
        elif size == 8:
            _repeat(_at(source, np.int64), _at(out, np.int64), width, ids, ptr)
        elif size == 4:
            _repeat(_at(source, np.int32), _at(out, np.int32), width, ids, ptr)
        else:
            _repeat(_at(source, np.uint8), _at(out, np.uint8), width, ids, ptr)
