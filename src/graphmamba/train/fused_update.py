"""Clipping and update of all weights in two launches, inside of a captured step."""

import math
from collections.abc import Sequence

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor
from torch.optim import AdamW, Optimizer

from graphmamba.train.fused_update_kernels import FIELDS, squares_kernel, update_kernel

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
        # Not from the memory of a captured graph, all of which the graph itself writes to.
        self._tables = [self._empty_table()]
        self._lines: Int[Tensor, "tensors fields"] | None = None

    def run(self) -> Float[Tensor, ""]:
        """Update; returns the norm of the gradient."""
        lines, programs = self._describe()
        (group,), table = self._optimizer.param_groups, self._tables[-1]
        if table.is_cuda and torch.cuda.is_current_stream_capturing():
            # What is captured runs later: until then the table can be filled.
            self._lines = lines
        else:
            table[: len(lines)].copy_(lines)
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
        """Fill the table of what was captured, before it runs for the first time."""
        if self._lines is not None:
            self._tables[-1][: len(self._lines)].copy_(self._lines)
            self._lines = None
            self._tables.append(self._empty_table())

    def _empty_table(self) -> Int[Tensor, "tensors fields"]:
        shape = len(self._parameters), FIELDS.value
        return torch.empty(shape, dtype=torch.int64, device=self._parameters[0].device)

    def _describe(self) -> tuple[Int[Tensor, "tensors fields"], int]:
        """A line for each tensor that has a gradient, and the programs that all of them take."""
        lines, programs = [], 0
        for weights in self._parameters:
            if (gradient := weights.grad) is None:
                continue
            held = weights, gradient, *self._state(weights)
            if not all(each.is_contiguous() and each.dtype == torch.float32 for each in held):
                raise RuntimeError("weights, gradients and moments must be dense float32")
            if any(each.device != weights.device for each in held):
                raise RuntimeError("gradients, moments and steps must lie where the weights do")
            lines.append([*(each.data_ptr() for each in held), weights.numel(), programs])
            programs += triton.cdiv(weights.numel(), BLOCK)
        return torch.tensor(lines, dtype=torch.int64), programs

    def _state(self, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Both moments and the number of steps, made where the optimizer has made none yet."""
        state = self._optimizer.state[weights]
        if not state:
            state["step"] = torch.zeros((), device=weights.device)
            for moment in ("exp_avg", "exp_avg_sq"):
                state[moment] = torch.zeros_like(weights, memory_format=torch.preserve_format)
        return state["exp_avg"], state["exp_avg_sq"], state["step"]
