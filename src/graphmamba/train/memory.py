"""How much memory a run has taken."""

import resource
import sys

import torch


def peak_memory(device: torch.device) -> int:
    """Bytes at the peak: of the GPU's allocator, or of the process where there is no GPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kibibytes, macOS in bytes
    return peak if sys.platform == "darwin" else peak * 1024
