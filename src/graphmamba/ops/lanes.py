"""One vector register as a Numba type, so that a kernel says itself what runs side by side.

Left alone, LLVM guards each inner loop against arrays that overlap and gives up where a loop has
many of them. A `Lanes` value is 64 bytes of neighbouring channels: load, compute, store. Machines
with narrower registers get it in pieces, from LLVM.
"""

import operator
from typing import Any, no_type_check

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, lower_builtin, register_model, type_callable

from graphmamba.ops.arrays import REGISTER_BYTES

INDEX = ir.IntType(32)


@no_type_check
class Lanes(types.Type):
    """Neighbouring numbers of one real type that fill a register."""

    def __init__(self, element):
        self.element = element
        self.count = REGISTER_BYTES * 8 // element.bitwidth
        super().__init__(name=f"Lanes({element})")


@register_model(Lanes)
@no_type_check
class LanesModel(models.PrimitiveModel):
    """Lanes are an LLVM vector."""

    def __init__(self, dmm, fe_type):
        element = dmm.lookup(fe_type.element).get_value_type()
        super().__init__(dmm, fe_type, ir.VectorType(element, fe_type.count))


@no_type_check
def _register(symbol, instruction):
    """Give the operator `symbol` between two `Lanes` the meaning of an LLVM instruction."""

    @type_callable(symbol)
    def type_operator(context):
        return lambda left, right: left if isinstance(left, Lanes) and left == right else None

    @lower_builtin(symbol, Lanes, Lanes)
    def lower_operator(context, builder, signature, operands):
        return getattr(builder, instruction)(*operands)


_register(operator.add, "fadd")
_register(operator.sub, "fsub")
_register(operator.mul, "fmul")
_register(operator.truediv, "fdiv")


def call_llvm(builder: Any, name: str, result: ir.Type, operands: Any) -> Any:
    """Call the LLVM intrinsic `name`, declared by its first use."""
    function_type = ir.FunctionType(result, [operand.type for operand in operands])
    function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}")
    return builder.call(function, operands)


def suffix(kind: ir.VectorType) -> str:
    """LLVM's name for a vector type, as in `llvm.fmuladd.v16f32`."""
    return f"v{kind.count}f{32 if kind.element == ir.FloatType() else 64}"


def multiply_add(builder: Any, factor: Any, other: Any, summand: Any) -> Any:
    """`factor * other + summand`, rounded once where the machine has such an instruction."""
    name = f"fmuladd.{suffix(factor.type)}"
    return call_llvm(builder, name, factor.type, [factor, other, summand])


def _splat(builder: Any, number: Any, kind: ir.VectorType) -> Any:
    blank = ir.Constant(kind, ir.Undefined)
    first = builder.insert_element(blank, number, INDEX(0))
    return builder.shuffle_vector(first, blank, ir.VectorType(INDEX, kind.count)([0] * kind.count))


@no_type_check
def _pointer(context, builder, array_type, array, index_type, index):
    """Where `array[index]` lies; the last axis is dense, and no index counts from the end."""
    fields = context.make_array(array_type)(context, builder, array)
    if isinstance(index_type, types.BaseTuple):
        indices = zip(cgutils.unpack_tuple(builder, index), index_type, strict=True)
    else:
        indices = [(index, index_type)]
    *outer, last = [context.cast(builder, value, kind, types.intp) for value, kind in indices]
    offset = builder.mul(last, last.type(array_type.dtype.bitwidth // 8))
    for position, value in enumerate(outer):
        stride = builder.extract_value(fields.strides, position)
        offset = builder.add(offset, builder.mul(value, stride))
    return cgutils.pointer_add(builder, fields.data, offset)


@no_type_check
def _first_lanes(builder, kind, count):
    """Mask of the first `count` lanes."""
    lanes = ir.VectorType(count.type, kind.count)
    return builder.icmp_signed("<", lanes(list(range(kind.count))), _splat(builder, count, lanes))


@intrinsic
@no_type_check
def load(typing_context, array, index):
    """The lanes that start at `array[index]`."""
    result = Lanes(array.dtype)

    def generate(context, builder, signature, operands):
        pointer = _pointer(context, builder, array, operands[0], index, operands[1])
        kind = context.get_value_type(result)
        address = builder.bitcast(pointer, kind.as_pointer())
        return builder.load(address, align=array.dtype.bitwidth // 8)

    return result(array, index), generate


@intrinsic
@no_type_check
def load_part(typing_context, array, index, count):
    """The first `count` lanes that start at `array[index]`, 0 in the others."""
    result = Lanes(array.dtype)

    def generate(context, builder, signature, operands):
        pointer = _pointer(context, builder, array, operands[0], index, operands[1])
        kind = context.get_value_type(result)
        address = builder.bitcast(pointer, kind.as_pointer())
        width = context.cast(builder, operands[2], count, types.intp)
        # A branch, since machines without masked loads would take every lane by itself.
        is_full = builder.icmp_signed(">=", width, width.type(kind.count))
        value = cgutils.alloca_once(builder, kind)
        with builder.if_else(is_full) as (full, part):
            with full:
                builder.store(builder.load(address, align=array.dtype.bitwidth // 8), value)
            with part:
                mask, align = _first_lanes(builder, kind, width), INDEX(array.dtype.bitwidth // 8)
                zeros = kind([0.0] * kind.count)
                name = f"masked.load.{suffix(kind)}.p0"
                masked = call_llvm(builder, name, kind, [address, align, mask, zeros])
                builder.store(masked, value)
        return builder.load(value)

    return result(array, index, count), generate


@intrinsic
@no_type_check
def store(typing_context, array, index, value):
    """Write the lanes to `array[index]` and its neighbours."""

    def generate(context, builder, signature, operands):
        pointer = _pointer(context, builder, array, operands[0], index, operands[1])
        address = builder.bitcast(pointer, operands[2].type.as_pointer())
        builder.store(operands[2], address, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, index, value), generate


@intrinsic
@no_type_check
def store_part(typing_context, array, index, value, count):
    """Write the first `count` lanes to `array[index]` and its neighbours."""

    def generate(context, builder, signature, operands):
        pointer = _pointer(context, builder, array, operands[0], index, operands[1])
        kind = operands[2].type
        address = builder.bitcast(pointer, kind.as_pointer())
        width = context.cast(builder, operands[3], count, types.intp)
        is_full = builder.icmp_signed(">=", width, width.type(kind.count))
        with builder.if_else(is_full) as (full, part):
            with full:
                builder.store(operands[2], address, align=array.dtype.bitwidth // 8)
            with part:
                mask, align = _first_lanes(builder, kind, width), INDEX(array.dtype.bitwidth // 8)
                name = f"masked.store.{suffix(kind)}.p0"
                call_llvm(builder, name, ir.VoidType(), [operands[2], address, align, mask])
        return context.get_dummy_value()

    return types.void(array, index, value, count), generate


@intrinsic
@no_type_check
def splat(typing_context, array, index):
    """The one number `array[index]` in all lanes."""
    result = Lanes(array.dtype)

    def generate(context, builder, signature, operands):
        pointer = _pointer(context, builder, array, operands[0], index, operands[1])
        return _splat(builder, builder.load(pointer), context.get_value_type(result))

    return result(array, index), generate


@intrinsic
@no_type_check
def zeros(typing_context, array):
    """Lanes of 0, of the type that `array` holds."""
    result = Lanes(array.dtype)

    def generate(context, builder, signature, operands):
        kind = context.get_value_type(result)
        return kind([0.0] * kind.count)

    return result(array), generate


@intrinsic
@no_type_check
def fma(typing_context, factor, other, summand):
    """`factor * other + summand`, rounded once where the machine has such an instruction."""

    def generate(context, builder, signature, operands):
        return multiply_add(builder, *operands)

    return factor(factor, other, summand), generate


@intrinsic
@no_type_check
def total(typing_context, value):
    """Sum of all lanes, halves first, so that its rounding is the same on every machine."""

    def generate(context, builder, signature, operands):
        (lanes,), count = operands, value.count
        while count > 1:
            count //= 2
            low, high = (
                ir.VectorType(INDEX, count)(list(range(start, start + count)))
                for start in (0, count)
            )
            lanes = builder.fadd(
                builder.shuffle_vector(lanes, lanes, low),
                builder.shuffle_vector(lanes, lanes, high),
            )
        return builder.extract_element(lanes, INDEX(0))

    return value.element(value), generate


@intrinsic
@no_type_check
def stay_apart(typing_context):
    """Keep the function that calls this out of its callers.

    An inner loop that is merged with much else runs out of registers for its constants.
    """

    def generate(context, builder, signature, operands):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate
