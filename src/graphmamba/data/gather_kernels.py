"""Numba kernel that writes all columns of a batch in one call, graph by graph."""

from typing import no_type_check

import numpy as np
from numba import carray  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

from graphmamba.data.cpu_compile import kernel
from graphmamba.data.gather import ADD, COPY, OWNER
from graphmamba.ops.cpu_compile import helper

_FAR = 1 << 56
"""More rows than there are: an address has no length."""


@intrinsic
@no_type_check
def _pointer(typing_context, address):
    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@helper
@no_type_check
def _at(address, dtype):
    return carray(_pointer(address), (_FAR,), dtype)


# Slices instead of sums of indices: what counts from zero needs no test for negative numbers, and
# only loops without tests are vectorised.


@helper
@no_type_check
def _copy(source, out, width, starts, ptr):
    for graph in range(starts.shape[0]):
        begin, count = starts[graph] * width, (ptr[graph + 1] - ptr[graph]) * width
        read, written = source[begin : begin + count], out[ptr[graph] * width :]
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
def _add(source, out, width, starts, ptr, before, is_moved):
    for graph in range(starts.shape[0]):
        begin, count = starts[graph] * width, (ptr[graph + 1] - ptr[graph]) * width
        read, written, by = source[begin : begin + count], out[ptr[graph] * width :], before[graph]
        for place in range(count):
            written[place] = read[place] + by * is_moved


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
                _add(_at(source, np.uint8), wide, width, start, ptr, before, is_moved)
            elif size == 2:
                _add(_at(source, np.int16), wide, width, start, ptr, before, is_moved)
            elif size == 4:
                _add(_at(source, np.int32), wide, width, start, ptr, before, is_moved)
            else:
                _add(_at(source, np.int64), wide, width, start, ptr, before, is_moved)
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
