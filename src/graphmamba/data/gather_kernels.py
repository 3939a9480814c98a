"""Writes all columns of a batch in one call, graph by graph, at the speed of the memory."""

from typing import no_type_check

import numpy as np
from llvmlite import ir
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from graphmamba.data.compiled import kernel
from graphmamba.data.gather import ADD, COPY, OWNER
from graphmamba.ops.cpu_compile import helper

LINE = 64
AHEAD = 4
"""Graphs between the one whose rows are asked for and the one that is copied."""
BLOCK = 256
"""Values that are copied before more rows are asked for: of many asked for at once, some are passed
over."""
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
def _rows_of(address, size, starts, ptr, graph):
    """Where the rows of a graph lie, which are few and far from those of the last one."""
    if graph >= starts.shape[0]:
        return address, 0
    return address + starts[graph] * size, (ptr[graph + 1] - ptr[graph]) * size


@helper
@no_type_check
def _ask_for_bytes(address, begin, end):
    for place in range(begin, end, LINE):
        _ask_for(address + place)


@helper
@no_type_check
def _ask_for_first(address, size, starts, ptr):
    """Ask for the rows of the graphs that no other comes long enough before."""
    for graph in range(AHEAD):
        begin, length = _rows_of(address, size, starts, ptr, graph)
        _ask_for_bytes(begin, 0, length)


@helper
@no_type_check
def _at(address, dtype):
    return carray(_pointer(address), (_FAR,), dtype)


# Slices instead of sums of indices: what counts from zero needs no test for negative numbers, and
# only loops without tests are vectorised.


@helper
@no_type_check
def _copy(address, source, out, width, starts, ptr):
    size = source.itemsize
    _ask_for_first(address, width * size, starts, ptr)
    for graph in range(starts.shape[0]):
        later, length = _rows_of(address, width * size, starts, ptr, graph + AHEAD)
        begin, count = starts[graph] * width, (ptr[graph + 1] - ptr[graph]) * width
        rows, outs = source[begin : begin + count], out[ptr[graph] * width :]
        for block in range(0, count, BLOCK):
            _ask_for_bytes(later, block * size, min((block + BLOCK) * size, length))
            read, written = rows[block : block + BLOCK], outs[block : block + BLOCK]
            for place in range(read.shape[0]):
                written[place] = read[place]
        _ask_for_bytes(later, -(-count // BLOCK) * BLOCK * size, length)


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
    size = source.itemsize
    _ask_for_first(address, width * size, starts, ptr)
    for graph in range(starts.shape[0]):
        later, length = _rows_of(address, width * size, starts, ptr, graph + AHEAD)
        begin, count = starts[graph] * width, (ptr[graph + 1] - ptr[graph]) * width
        rows, outs, by = source[begin : begin + count], out[ptr[graph] * width :], before[graph]
        for block in range(0, count, BLOCK):
            _ask_for_bytes(later, block * size, min((block + BLOCK) * size, length))
            read, written = rows[block : block + BLOCK], outs[block : block + BLOCK]
            for place in range(read.shape[0]):
                written[place] = read[place] + by * is_moved
        _ask_for_bytes(later, -(-count // BLOCK) * BLOCK * size, length)


@kernel
@no_type_check
def look_up(bounds, ids, starts, ptrs):
    """Find the rows of the graphs `ids`; writes `starts` and `ptrs`, as `fill` reads them.

    Returns whether all of them are there.
    """
    for place in range(ids.shape[0]):
        if ids[place] < 0 or ids[place] >= bounds.shape[1] - 1:
            return False
    for table in range(bounds.shape[0]):
        rows = 0
        ptrs[table, 0] = 0
        for place in range(ids.shape[0]):
            begin = bounds[table, ids[place]]
            rows += bounds[table, ids[place] + 1] - begin
            starts[table, place] = begin
            ptrs[table, place + 1] = rows
    return True


@kernel
@no_type_check
def fill(jobs, outs, ids, starts, ptrs):
    """Write every column of the graphs `ids`.

    Args:
        jobs: [columns, 6] what to do, as `gather.Jobs` says.
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
