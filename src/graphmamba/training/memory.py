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


def forget_peak(device: torch.device) -> None:
    """Begin a new peak; that of a process without a GPU stays."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
