"""Numbers on their way to a GPU that nobody waits for."""

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor


def send(numbers: Int64[np.ndarray, "*shape"], device: torch.device) -> Tensor:
    """Copy numbers to a device, in the order of its stream.

    They go through pinned memory, which PyTorch gives to nobody else before the copy is done. A
    driver may read ordinary memory as late as the GPU comes to it, and by then it would hold the
    numbers of a later batch.
    """
    tensor = torch.from_numpy(numbers)
    held = tensor.pin_memory() if device.type == "cuda" else tensor
    return held.to(device, non_blocking=True)
