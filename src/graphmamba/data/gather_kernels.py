"""Writes all columns of a batch in one call, graph by graph, at the speed of the memory."""

from typing import Any, no_type_check

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

COPY, REPEAT, ADD, OWNER = range(4)
"""What is done with a column: copy rows, repeat a graph's only row, add to numbers, or write the
place of each row's graph in the batch."""

_OPTIONS: Any = {"nogil": True, "error_model": "numpy"}
LINE = 64
_FAR = 1 << 56
"""More rows than there are: an address has no length."""


def _kernel(function: Any) -> Any:
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        # Where no folder can be written to, each process compiles for itself.
        return njit(**_OPTIONS)(function)


_helper: Any = njit(**_OPTIONS)


@intrinsic
@no_type_check
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@_helper
@no_type_check
def _at(address, dtype):
    return carray(_pointer(address), (_FAR,), dtype)


# Slices instead of sums of indices: what counts from zero needs no test for negative numbers, and
# only loops without tests are vectorised.


@_helper
@no_type_check
def _copy(source, out, width, starts, ptr):
    for graph in range(starts.shape[0]):
        count = (ptr[graph + 1] - ptr[graph]) * width
        begin, put = starts[graph] * width, ptr[graph] * width
        read, written = source[begin : begin + count], out[put : put + count]
        for place in range(count):
            written[place] = read[place]


@_helper
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


@_helper
@no_type_check
def _touch(source, width, starts, ptr):
    """Read a value of each cache line, all at once, since the rows of a graph are few and far."""
    step, total = LINE // source.itemsize, 0
    for graph in range(starts.shape[0]):
        begin = starts[graph] * width
        read = source[begin : begin + (ptr[graph + 1] - ptr[graph]) * width]
        for line in range(read.shape[0] // step):
            total += read[line * step]
    return total


@_helper
@no_type_check
def _add(source, out, width, starts, ptr, shift):
    touched = _touch(source, width, starts, ptr)
    for graph in range(starts.shape[0]):
        count, by = (ptr[graph + 1] - ptr[graph]) * width, shift[graph]
        begin, put = starts[graph] * width, ptr[graph] * width
        read, written = source[begin : begin + count], out[put : put + count]
        for place in range(count):
            written[place] = read[place] + by
    return touched


@_kernel
@no_type_check
def fill(jobs, outs, ids, starts, ptrs, shifts):
    """Write every column of the graphs `ids`.

    Args:
        jobs: [columns, 6]: what to do, table, bytes of a value, values of a row, address of the
            column, row of `shifts`.
        outs: [columns] addresses to write to.
        ids: [graphs] the graphs.
        starts: [tables, graphs] first row of each graph in its table.
        ptrs: [tables, graphs + 1] first row of each graph in the batch.
        shifts: [shifts, graphs] what is added to the numbers of each graph.
    """
    touched = 0
    for number in range(jobs.shape[0]):
        task, table, size, width, source, shift = jobs[number]
        start, ptr, by, out = starts[table], ptrs[table], shifts[shift], outs[number]
        if task == OWNER:
            for graph in range(ids.shape[0]):
                _at(out, np.int64)[ptr[graph] : ptr[graph + 1]] = graph
        elif task == ADD:
            wide = _at(out, np.int64)
            if size == 1:
                touched += _add(_at(source, np.uint8), wide, width, start, ptr, by)
            elif size == 2:
                touched += _add(_at(source, np.int16), wide, width, start, ptr, by)
            elif size == 4:
                touched += _add(_at(source, np.int32), wide, width, start, ptr, by)
            else:
                touched += _add(_at(source, np.int64), wide, width, start, ptr, by)
        elif task == COPY:
            if size == 8:
                _copy(_at(source, np.int64), _at(out, np.int64), width, start, ptr)
            elif size == 4:
                _copy(_at(source, np.int32), _at(out, np.int32), width, start, ptr)
            else:
                _copy(_at(source, np.uint8), _at(out, np.uint8), width, start, ptr)
        elif size == 8:
            _repeat(_at(source, np.int64), _at(out, np.int64), width, ids, ptr)
        elif size == 4:
            _repeat(_at(source, np.int32), _at(out, np.int32), width, ids, ptr)
        else:
            _repeat(_at(source, np.uint8), _at(out, np.uint8), width, ids, ptr)
    # Given back so that the compiler does not leave the touching out.
    return touched
