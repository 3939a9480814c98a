"""Elementary functions of a whole register at once, where the C library takes one number a call.

Polynomials after a reduction of the range: right to about two units in the last place, NaN stays
NaN, and the limits at both infinities hold.
"""

from math import factorial, log
from typing import no_type_check

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from graphmamba.ops.lanes import multiply_add

# As in torch, so that gradients agree there too.
SOFTPLUS_IS_IDENTITY_ABOVE = 20.0

# Below it the closed form of the slope of (exp(x) - 1) / x cancels, and its series is short.
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
        """Horner's rule, from the constant upwards in `coefficients`."""
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
        """The nearest number in the range; NaN stays."""
        x = self.where(x, "<", low, self.number(low), x)
        return self.where(x, ">", high, self.number(high), x)

    def nearest(self, x):
        """The nearest whole number, as a real and as an integer."""
        # The sum has no room for a fraction: its low bits are the whole number.
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
        # In two factors, since results may lie outside the range of one.
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
    """2 to the power x, for the innermost loops: what is below the normal numbers becomes 0."""
    x = emit.clamp(x, -float(emit.bias), float(emit.bias + 1))
    n, whole = emit.nearest(x)
    f = emit.builder.fsub(x, n)
    taylor = [log(2) ** k / factorial(k) for k in range(1, 14)]
    slope = emit.polynomial(f, EXP2_SINGLE if emit.is_single else taylor)
    return emit.builder.fmul(emit.fma(slope, f, emit.number(1.0)), emit.power_of_two(whole))


@_lanewise
@no_type_check
def to_base_two(emit, x):
    """The exponent for `exp2` that gives exp(x)."""
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
    # log(1 + e) = 2 artanh(s) with s = e / (2 + e) at most 1/3, and 2 s = e - s e: the part that
    # is rounded most is then the smaller one.
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
    """exp(x) and (exp(x) - 1) / x: what zero-order hold does to the state and to its input."""

    def generate(context, builder, signature, operands):
        emit = Emitter(builder, operands[0].type)
        one, lowest, highest = emit.number(1.0), -log(2) * emit.bias, log(2) * (emit.bias + 1)
        grown, n = emit.split(emit.clamp(operands[0], lowest, highest))
        power = emit.power_of_two(n)
        growth = builder.fmul(power, builder.fadd(one, grown))
        rise = emit.fma(power, grown, builder.fsub(power, one))
        # There the 1 is lost anyway, and the power may be infinite.
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
