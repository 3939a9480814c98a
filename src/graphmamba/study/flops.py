"""Work of a model on a batch, in floating-point operations; a multiply-add counts as two."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch.utils.flop_counter import FlopCounterMode

from graphmamba.study.operator_flops.counter import ElementwiseCounter
from graphmamba.study.operator_flops.products import PRODUCTS, TORCH_PRODUCTS
from graphmamba.study.operator_flops.scan import SCAN_OPERATORS

Form = Literal["here", "original"]
"""`here`: what runs in this library. `original`: what the code of each model's authors does for the
same numbers; it pads rows before they are mapped, and maps equal rows one by one."""


@dataclass(frozen=True)
class Flops:
    """Operations by kind; adding two adds each kind."""

    products: int = 0
    """Matrix products, attention's included, as `torch.utils.flop_counter` counts them."""
    scan: int = 0
    """The selective scan and its short convolution, which that counter knows by our formulas."""
    elementwise: int = 0
    """Everything else: one for each number that a pointwise function returns or a sum takes in.
    Copies, gathers, sorting and integers cost nothing."""

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(
            self.products + other.products,
            self.scan + other.scan,
            self.elementwise + other.elementwise,
        )

    @property
    def total(self) -> int:
        """All kinds together."""
        return self.products + self.scan + self.elementwise


def count_flops(step: Callable[[], object]) -> Flops:
    """Run a step and count what its operators do; backward passes in it count too."""
    known = {**SCAN_OPERATORS, **PRODUCTS, **TORCH_PRODUCTS}
    counter = FlopCounterMode(display=False, custom_mapping=known)
    with ElementwiseCounter() as elementwise, counter:
        step()
    counts = counter.get_flop_counts().get("Global", {})
    scan = sum(flops for operator, flops in counts.items() if operator in SCAN_OPERATORS)
    return Flops(
        products=counter.get_total_flops() - scan, scan=scan, elementwise=elementwise.flops
    )
