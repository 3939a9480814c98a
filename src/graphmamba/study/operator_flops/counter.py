"""Pointwise work of whatever runs, added up."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from graphmamba.study.operator_flops.elementwise import ELEMENTWISE
from graphmamba.study.operator_flops.own_elementwise import OWN_ELEMENTWISE

aten = torch.ops.aten

FREE = {aten.clone, aten.masked_fill, aten.where, aten.nan_to_num}
"""Pointwise by name, but they only choose and copy."""


class ElementwiseCounter(TorchDispatchMode):
    """Adds up `flops` of pointwise functions, sums and norms; products are left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator and add what it cost."""
        out = func(*args, **(kwargs or {}))
        self.flops += _elementwise_flops(func, args, out)
        return out


def _elementwise_flops(func: Any, args: tuple[Any, ...], out: Any) -> int:
    packet = func.overloadpacket
    first = out[0] if isinstance(out, tuple | list) and out else out
    if not isinstance(first, Tensor) or not first.is_floating_point():
        return 0
    formula = ELEMENTWISE.get(packet) or OWN_ELEMENTWISE.get(func._schema.name)
    if formula is not None:
        return formula(*args)
    is_work = torch.Tag.pointwise in func.tags and packet not in FREE
    return first.numel() if is_work else 0
