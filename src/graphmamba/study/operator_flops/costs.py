"""What is counted for each number that goes through a norm, a softmax, a loss, a dropout."""

from collections.abc import Callable

Formula = Callable[..., int]
"""From the arguments of a call, or from their shapes, to its operations."""

NORM = 7
"""Mean, variance, scaling and affine map, for each number."""
KNOWN_NORM = 4
"""The same with mean and variance known, as BatchNorm has them at evaluation."""
SOFTMAX = 5
"""Maximum, difference, exponential, sum, quotient, for each score."""
SCORE = SOFTMAX + 2
"""Scaling and mask before the softmax."""
LENGTH = 3
"""Scaling a row to length 1: its squares and their sum, and the quotient, for each number."""
ENTROPY = 5
"""Exponential, sum and logarithm, and product and difference with the label, for each logit."""
SLOPE = 2
"""The difference and the factor of a loss's gradient, which is found with the loss."""
DROPOUT = 1
"""The product with the scaled mask."""
BACKWARD = 2
"""A product, and about as well a norm or a softmax, has two gradients of its own size."""
