"""The line-ups of all layers of a stack, made together: few sorts instead of one for each layer."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from graphmamba.data.topology import Topology
from graphmamba.ordering.line_up import LineUp, line_up_layers
from graphmamba.ordering.policy import OrderPolicy

MOST_STEPS = 1 << 22
"""Steps of one sort, at most: beyond, it takes memory, and what it spares no longer counts."""

Request = tuple[OrderPolicy, int, int]
"""Policy, samples and layer."""


def line_ups_of(requests: Iterable[Request], topology: Topology) -> dict[Request, LineUp]:
    """Make the line-ups that layers will ask for."""
    layers: dict[tuple[OrderPolicy, int], set[int]] = defaultdict(set)
    for policy, samples, layer in requests:
        layers[policy, samples].add(layer)
    made: dict[Request, LineUp] = {}
    for (policy, samples), numbers in layers.items():
        most = max(MOST_STEPS // max(samples * topology.batch.shape[0], 1), 1)
        for run in _runs(sorted(numbers), most):
            lines = line_up_layers(policy, topology, samples=samples, layers=run)
            for layer, line in zip(run, lines, strict=True):
                made[policy, samples, layer] = line
    return made


def _runs(numbers: Sequence[int], most: int) -> Iterator[range]:
    """Divide ascending numbers into runs without gaps, of `most` at most."""
    first = 0
    for place in range(1, len(numbers) + 1):
        is_end = place == len(numbers) or numbers[place] != numbers[place - 1] + 1
        if is_end or place - first == most:
            yield range(numbers[first], numbers[place - 1] + 1)
            first = place
