"""Training statistics of the two superpixel sets, whose columns differ in scale by hundreds."""

from dataclasses import dataclass

from graphmamba.nn.encoder_config import StandardizationName


@dataclass(frozen=True)
class Statistics:
    """Mean and standard deviation of each column over a training set."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


# Columns of a node: mean, deviation, maximum, minimum of R, G, B, then row and column of the
# centre in pixels. Columns of an edge: Sobel value on the shared boundary, pixels in it. Numbers
# from "Where did the gap go?", https://arxiv.org/abs/2309.00367.
# fmt: off
NODE_STATISTICS: dict[StandardizationName, Statistics] = {
    "pascalvoc-sp": Statistics(
        mean=(
            0.45824501, 0.43857411, 0.40561178, 0.067938097, 0.065604292, 0.065742709,
            0.65212941, 0.62894762, 0.60173863, 0.27769071, 0.26425251, 0.23729359,
            193.44997, 234.72206,
        ),
        deviation=(
            0.25952947, 0.25716761, 0.27130592, 0.054822665, 0.054429270, 0.054474957,
            0.26238337, 0.26600540, 0.27750680, 0.25197381, 0.24986187, 0.26069802,
            117.68297, 140.07195,
        ),
    ),
    "coco-sp": Statistics(
        mean=(
            0.46977347, 0.44679317, 0.40790915, 0.070808627, 0.068686441, 0.068498217,
            0.67777938, 0.65244222, 0.62096798, 0.27554795, 0.25910738, 0.22901227,
            242.61935, 289.85367,
        ),
        deviation=(
            0.26218116, 0.25831082, 0.27416739, 0.057440419, 0.056832556, 0.057100497,
            0.25929087, 0.26201612, 0.27675411, 0.25456995, 0.25140920, 0.26182330,
            151.52475, 176.30779,
        ),
    ),
}
# fmt: on
EDGE_STATISTICS: dict[StandardizationName, Statistics] = {
    "pascalvoc-sp": Statistics(mean=(0.07640745, 33.73478), deviation=(0.0868775, 20.945076)),
    "coco-sp": Statistics(mean=(0.07848548, 43.68736), deviation=(0.08902349, 28.473562)),
}
