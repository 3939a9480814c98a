"""Clipping and update of all weights in two launches, inside of a captured step."""

import math
from collections.abc import Sequence

import torch
import triton
from jaxtyping import Float
from torch import Tensor
from torch.optim import AdamW, Optimizer

from graphmamba.train.fused_update_kernels import squares_kernel, update_kernel

BLOCK = 1024
WARPS = 4


class FusedUpdate:
    """Does what `clip_grad_norm_` and Adam or AdamW do, with the optimizer's own state.

    PyTorch takes a launch for each few dozen tensors, and a model has hundreds of small ones.

    Args:
        optimizer: Adam or AdamW with one group of parameters; a rate that is a tensor.
        parameters: Weights, in float32.
        clip: Greatest norm of the gradient; 0 clips nothing.
    """

    def __init__(self, optimizer: Optimizer, parameters: Sequence[Tensor], clip: float) -> None:
        self._optimizer, self._parameters, self._clip = optimizer, parameters, clip
        self._written: list[tuple[Tensor, Tensor]] = []

    def is_ready(self) -> bool:
        """Tell whether the optimizer has made its state: it does so in its first step."""
        state = self._optimizer.state
        return all("exp_avg" in state[each] for each in self._with_gradient())

    def run(self) -> Float[Tensor, ""]:
        """Update; returns the norm of the gradient."""
        lines, programs = self._lines()
        (group,), device = self._optimizer.param_groups, self._parameters[0].device
        table = torch.empty(lines.shape, dtype=torch.int64, device=device)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            # What is captured runs later: until then the table can be filled, and must be kept.
            self._written.append((table, lines))
        else:
            table.copy_(lines)
        squares, norm = table.new_empty(programs, dtype=torch.float32), group["lr"].new_empty(())
        tensors = {"TENSORS": triton.next_power_of_2(len(lines)), "BLOCK": BLOCK}
        squares_kernel[(programs,)](table, squares, len(lines), **tensors, num_warps=WARPS)
        beta_1, beta_2 = group["betas"]
        update_kernel[(programs,)](
            *(table, squares, group["lr"], norm, len(lines), programs),
            CLIP=self._clip,
            DECAY=group["weight_decay"],
            IS_DECOUPLED=isinstance(self._optimizer, AdamW),
            BETA_1=beta_1,
            BETA_2=beta_2,
            LOG_1=math.log2(beta_1),
            LOG_2=math.log2(beta_2),
            EPSILON=group["eps"],
            num_warps=WARPS,
            **tensors,
        )
        return norm

    def fill(self) -> None:
        """Fill the tables of what was captured; before it runs for the first time."""
        for table, lines in self._written:
            table.copy_(lines)

    def _with_gradient(self) -> list[Tensor]:
        return [each for each in self._parameters if each.grad is not None]

    def _lines(self) -> tuple[Tensor, int]:
        """A line for each tensor, and the programs that all of them take."""
        lines, programs = [], 0
        for weights in self._with_gradient():
            state, gradient = self._optimizer.state[weights], weights.grad
            assert gradient is not None
            held = weights, gradient, state["exp_avg"], state["exp_avg_sq"], state["step"]
            if not all(each.is_contiguous() and each.dtype == torch.float32 for each in held):
                raise RuntimeError("weights, gradients and moments must be dense float32")
            lines.append([*(each.data_ptr() for each in held), weights.numel(), programs])
            programs += triton.cdiv(weights.numel(), BLOCK)
        return torch.tensor(lines, dtype=torch.int64), programs
