"""A vector register as a Numba type, with elementary functions.

LLVM's vectoriser checks each inner loop for overlapping arrays, and gives up if there are many. A
`Lanes` value is 64 bytes of neighbouring channels; LLVM splits it on machines with narrower
registers. Functions are polynomials after range reduction, accurate to about two units in the last
place, also for NaN and infinities.
"""

import operator
from math import factorial, log
from typing import Any, no_type_check

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.extending import intrinsic, lower_builtin, register_model, type_callable

from graphmamba.ops.cpu_arrays import REGISTER_BYTES

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
    """Implement the operator `symbol` between two `Lanes` by an LLVM instruction."""

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
    """Pointer to `array[index]`; the last axis is dense, and indices are not negative."""
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
        # A branch, since machines without masked loads would load each lane separately.
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
    """The number `array[index]` in all lanes."""
    result = Lanes(array.dtype)

    def generate(context, builder, signature, operands):
        pointer = _pointer(context, builder, array, operands[0], index, operands[1])
        return _splat(builder, builder.load(pointer), context.get_value_type(result))

    return result(array, index), generate


@intrinsic
@no_type_check
def zeros(typing_context, array):
    """Lanes of 0, of the type of `array`."""
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
    """Sum of all lanes by halving, with the same rounding on every machine."""

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
    """Prevent inlining of the calling function, whose inner loop needs all registers."""

    def generate(context, builder, signature, operands):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), generate


SOFTPLUS_IS_IDENTITY_ABOVE = 20.0  # as in torch
# Below it the closed form of the derivative of (exp(x) - 1) / x cancels, and the series is short.
SLOPE_SERIES_BELOW = 1.0

# The polynomial P of degree 5 for which 1 + f P(f) has the least relative error, 2.0e-9, to 2^f
# on [-1/2, 1/2].
EXP2_SINGLE = (
    0.693147202855,
    0.240226479136,
    0.0555033247126,
    0.00961843735844,
    0.00133988743782,
    0.000153533617866,
)


@no_type_check
class Emitter:
    """Writes arithmetic on vectors of one kind as LLVM instructions."""

    def __init__(self, builder, kind):
        self.builder, self.kind = builder, kind
        self.is_single = kind.element == ir.FloatType()
        self.fraction_bits, self.bias = (23, 127) if self.is_single else (52, 1023)
        self.whole = ir.VectorType(ir.IntType(32 if self.is_single else 64), kind.count)

    def number(self, value):
        """A real constant in all lanes."""
        return self.kind([value] * self.kind.count)

    def integer(self, value):
        """An integer constant in all lanes."""
        return self.whole([value] * self.kind.count)

    def fma(self, factor, other, summand):
        """`factor * other + summand`."""
        return multiply_add(self.builder, factor, other, summand)

    def polynomial(self, x, coefficients):
        """Polynomial by Horner's rule, the constant coefficient first."""
        *lower, highest = coefficients
        value = self.number(highest)
        for coefficient in reversed(lower):
            value = self.fma(value, x, self.number(coefficient))
        return value

    def where(self, x, comparison, bound, then, otherwise):
        """`then` in the lanes that compare true; NaN never does."""
        condition = self.builder.fcmp_ordered(comparison, x, self.number(bound))
        return self.builder.select(condition, then, otherwise)

    def clamp(self, x, low, high):
        """Clamp to a range; NaN stays."""
        x = self.where(x, "<", low, self.number(low), x)
        return self.where(x, ">", high, self.number(high), x)

    def nearest(self, x):
        """The nearest whole number, as a real and as an integer."""
        # The sum rounds to an integer, which is in its low bits.
        rounder = 1.5 * 2.0**self.fraction_bits
        shifted = self.builder.fadd(x, self.number(rounder))
        whole = self.builder.bitcast(shifted, self.whole)
        bits = self.builder.bitcast(self.number(rounder), self.whole)
        return self.builder.fsub(shifted, self.number(rounder)), self.builder.sub(whole, bits)

    def power_of_two(self, exponent):
        """2 to an integer; one step outside the normal range it is 0 or infinity."""
        raised = self.builder.add(exponent, self.integer(self.bias))
        bits = self.builder.shl(raised, self.integer(self.fraction_bits))
        return self.builder.bitcast(bits, self.kind)

    def split(self, x):
        """`x` = n log 2 + r with a small r: exp(r) - 1 and the integer n."""
        n, whole = self.nearest(self.builder.fmul(x, self.number(1 / log(2))))
        # log 2 in two parts, the first of so few bits that its product with n is exact.
        coarse = 0.693359375 if self.is_single else 6.93147180369123816490e-01
        fine = -2.12194440054690583e-4 if self.is_single else 1.90821492927058770002e-10
        r = self.fma(n, self.number(-fine), self.fma(n, self.number(-coarse), x))
        series = [1 / factorial(k) for k in range(2, 8 if self.is_single else 14)]
        square = self.builder.fmul(r, r)
        return self.fma(square, self.polynomial(r, series), r), whole

    def exp(self, x):
        """Exponential function."""
        low, high = (-104.0, 89.0) if self.is_single else (-746.0, 710.0)
        grown, n = self.split(self.clamp(x, low, high))
        # Two factors, since 2**n may be out of range where the result is not.
        half = self.builder.ashr(n, self.integer(1))
        first, second = self.power_of_two(half), self.power_of_two(self.builder.sub(n, half))
        return self.builder.fmul(self.fma(first, grown, first), second)

    def sigmoid(self, x):
        """1 / (1 + exp(-x))."""
        one = self.number(1.0)
        return self.builder.fdiv(one, self.builder.fadd(one, self.exp(self.builder.fneg(x))))


@no_type_check
def _lanewise(function):
    """Make a kernel function of one that maps an emitter and its operands to one result."""

    def typed(typing_context, x):
        def generate(context, builder, signature, operands):
            return function(Emitter(builder, operands[0].type), operands[0])

        return x(x), generate

    typed.__name__, typed.__doc__ = function.__name__, function.__doc__
    return intrinsic(typed)


@_lanewise
@no_type_check
def exp(emit, x):
    """Exponential function, with gradual underflow."""
    return emit.exp(x)


@_lanewise
@no_type_check
def exp2(emit, x):
    """2 to the power x, for inner loops; subnormal results become 0."""
    x = emit.clamp(x, -float(emit.bias), float(emit.bias + 1))
    n, whole = emit.nearest(x)
    f = emit.builder.fsub(x, n)
    taylor = [log(2) ** k / factorial(k) for k in range(1, 14)]
    slope = emit.polynomial(f, EXP2_SINGLE if emit.is_single else taylor)
    return emit.builder.fmul(emit.fma(slope, f, emit.number(1.0)), emit.power_of_two(whole))


@_lanewise
@no_type_check
def to_base_two(emit, x):
    """Return x / log 2, whose `exp2` is exp(x)."""
    return emit.builder.fmul(x, emit.number(1 / log(2)))


@_lanewise
@no_type_check
def sigmoid(emit, x):
    """1 / (1 + exp(-x))."""
    return emit.sigmoid(x)


@_lanewise
@no_type_check
def silu(emit, x):
    """SiLU: x / (1 + exp(-x))."""
    below = emit.builder.fadd(emit.number(1.0), emit.exp(emit.builder.fneg(x)))
    return emit.builder.fdiv(x, below)


@_lanewise
@no_type_check
def silu_slope(emit, x):
    """Derivative of `silu`: s + x s (1 - s) with s = sigmoid(x)."""
    build, one = emit.builder, emit.number(1.0)
    falling = emit.exp(build.fneg(x))
    s = build.fdiv(one, build.fadd(one, falling))
    # 1 - s would cancel where s is close to 1; the product would overflow on the other side.
    rest = emit.where(x, ">", 0.0, build.fmul(falling, s), build.fsub(one, s))
    return emit.fma(build.fmul(x, s), rest, s)


@_lanewise
@no_type_check
def softplus(emit, x):
    """log(1 + exp(x)), and x itself above 20."""
    build, zero, two = emit.builder, emit.number(0.0), emit.number(2.0)
    small = emit.exp(emit.where(x, ">", 0.0, build.fneg(x), x))
    # log(1 + e) = 2 artanh(s) with s = e / (2 + e) at most 1/3. With 2 s = e - s e, the larger
    # rounding error is in the smaller summand.
    ratio = build.fdiv(small, build.fadd(two, small))
    square = build.fmul(ratio, ratio)
    series = [-2 / (2 * k + 1) for k in range(1, 9 if emit.is_single else 17)]
    rest = emit.fma(square, emit.polynomial(square, series), small)
    logarithm = emit.fma(build.fneg(ratio), rest, small)
    smooth = build.fadd(logarithm, emit.where(x, "<", 0.0, zero, x))
    return emit.where(x, ">", SOFTPLUS_IS_IDENTITY_ABOVE, x, smooth)


@_lanewise
@no_type_check
def softplus_slope(emit, x):
    """Derivative of `softplus`."""
    return emit.where(x, ">", SOFTPLUS_IS_IDENTITY_ABOVE, emit.number(1.0), emit.sigmoid(x))


@intrinsic
@no_type_check
def hold(typing_context, x):
    """exp(x) and (exp(x) - 1) / x: decay and input weight of zero-order hold."""

    def generate(context, builder, signature, operands):
        emit = Emitter(builder, operands[0].type)
        one, lowest, highest = emit.number(1.0), -log(2) * emit.bias, log(2) * (emit.bias + 1)
        grown, n = emit.split(emit.clamp(operands[0], lowest, highest))
        power = emit.power_of_two(n)
        growth = builder.fmul(power, builder.fadd(one, grown))
        rise = emit.fma(power, grown, builder.fsub(power, one))
        # For large x, exp(x) - 1 rounds to exp(x), and the power may be infinite.
        rise = emit.where(operands[0], ">", highest / 2, growth, rise)
        quotient = builder.fdiv(rise, operands[0])
        quotient = emit.where(operands[0], "==", 0.0, one, quotient)
        return context.make_tuple(builder, signature.return_type, [growth, quotient])

    return types.UniTuple(x, 2)(x), generate


@intrinsic
@no_type_check
def hold_slope(typing_context, x, growth, quotient):
    """Derivative of (exp(x) - 1) / x, from both results of `hold`."""

    def generate(context, builder, signature, operands):
        argument, grown, ratio = operands
        emit = Emitter(builder, argument.type)
        closed = builder.fdiv(builder.fsub(grown, ratio), argument)
        terms = 12 if emit.is_single else 20
        series = emit.polynomial(argument, [1 / (factorial(k) * (k + 2)) for k in range(terms)])
        absolute = emit.where(argument, "<", 0.0, builder.fneg(argument), argument)
        return emit.where(absolute, "<", SLOPE_SERIES_BELOW, series, closed)

    return x(x, growth, quotient), generate
