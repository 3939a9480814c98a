"""Gradient scaling, clipping and Adam(W) on a GPU, in three launches instead of twenty."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from graphmamba.ops.triton_launch import ceil_div
from graphmamba.training.update_kernels import squares_kernel, update_kernel

BLOCK = 1024


class FusedUpdate:
    """The weight update of `CapturedStep`: division by the labels, clipping, Adam(W).

    Moments and step numbers are those of the optimizer, so that it can be saved as usual.

    Args:
        optimizer: Adam or AdamW with one parameter group, whose learning rate is a tensor.
        parameters: The parameters that have gradients.
        parts: Their gradients, views of `flat`.
        flat: All gradients end to end, summed over labels; the last entry is the number of labels.
        clip: Largest gradient norm; 0 for no clipping.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Sequence[nn.Parameter],
        parts: Sequence[Tensor],
        flat: Float[Tensor, " numbers"],
        clip: float,
    ) -> None:
        (self._group,) = optimizer.param_groups
        self._is_decoupled, self._flat, self._clip = isinstance(optimizer, AdamW), flat, clip
        states = [_state(optimizer, each) for each in parameters]
        self._steps = [state["step"] for state in states]
        lines = []
        for weights, state, part in zip(parameters, states, parts, strict=True):
            held = weights, state["exp_avg"], state["exp_avg_sq"]
            if not all(each.is_contiguous() and each.dtype == torch.float32 for each in held):
                raise RuntimeError("weights and moments must be dense float32")
            for begin in range(0, weights.numel(), BLOCK):
                addresses = [each.data_ptr() + 4 * begin for each in held]
                count = min(BLOCK, weights.numel() - begin)
                lines.append([*addresses, part.storage_offset() + begin, count])
        self._table: Int[Tensor, "blocks fields"] = torch.tensor(lines, device=flat.device)

    def __call__(self, own: Float[Tensor, "2"], last_loss: Float[Tensor, ""]) -> None:
        """Update weights and moments.

        Args:
            own: The sum of the loss over the labels of this process, and their number.
            last_loss: Receives the mean loss, or NaN if the gradient is not finite.
        """
        torch._foreach_add_(self._steps, 1)
        self.launch(own, last_loss)

    def launch(self, own: Float[Tensor, "2"], last_loss: Float[Tensor, ""]) -> None:
        """Launch the kernels without counting a step."""
        group, numbers = self._group, len(self._flat) - 1
        beta_1, beta_2 = group["betas"]
        sums = ceil_div(numbers, BLOCK)
        squares = self._flat.new_empty(sums)
        squares_kernel[(sums,)](self._flat, squares, numbers, BLOCK=BLOCK, num_warps=4)
        update_kernel[(len(self._table),)](
            *(self._table, self._flat, squares, group["lr"], self._steps[0], own, last_loss),
            *(numbers, sums),
            CLIP=self._clip,
            DECAY=group["weight_decay"],
            IS_DECOUPLED=self._is_decoupled,
            BETA_1=beta_1,
            BETA_2=beta_2,
            LOG_1=math.log2(beta_1),
            LOG_2=math.log2(beta_2),
            EPSILON=group["eps"],
            BLOCK=BLOCK,
            num_warps=4,
        )


def _state(optimizer: Optimizer, weights: nn.Parameter) -> dict[str, Tensor]:
    """State of the optimizer for a parameter; zeros if there is none yet."""
    state: dict[str, Tensor] = optimizer.state[weights]
    if not state:
        state["step"] = torch.zeros((), device=weights.device)
        state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(weights) for _ in range(2))
    return state
