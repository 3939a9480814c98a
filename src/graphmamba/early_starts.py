"""Kernels that are put in place while the ones before them are ending.

Between two kernels of a captured step a GPU idles for about a microsecond. It need not where the
second is launched with `early`: its programs are started as soon as all programs of the first have
let them (`let_next_start`) or are done. For that to be safe, each kernel so launched

1. waits (`await_previous`) before it reads or writes any memory that another kernel touches, and
   does so in every program, also in one that has nothing to do. When a kernel is done, those
   behind it take everything before it for done as well, since it has waited for that itself.
   Weights and batches are no exception: the update and the gathering kernel write them;
2. may let the next kernel start at any time, as that one waits for the end of this one. What is in
   place keeps other streams from its place, though: where programs go through several tiles, they
   let it at the last, or by being done; else at once.

One exception to 1 is the second kernel of a norm, which loads rows before it waits. The first has
waited before it lets the second start, so that whatever came before the first is done; and these
loads look past the nearest cache, which only waiting brings up to date.

A kernel launched in the ordinary way, PyTorch's among them, starts when the one before it is done.
Streams may fork and join in between: a kernel waits for all that it depends on, whatever stream
that is of. Where no GPU can start kernels early, nothing changes.
"""

from functools import cache
from typing import no_type_check

import torch
import triton
import triton.language as tl

HOPPER = (9, 0)
"""The first GPUs with programmatic dependent launches."""


def starts_early(device: torch.device) -> bool:
    """Tell whether a kernel can be put in place while the one before it is ending."""
    return device.type == "cuda" and _capability(device) >= HOPPER


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    # Asked at every launch, and PyTorch takes a microsecond to say.
    return torch.cuda.get_device_capability(device)


def early(device: torch.device) -> dict[str, bool]:
    """Return the options of a launch: early where the device can, and PDL tells the kernel so."""
    return {"PDL": True, "launch_pdl": True} if starts_early(device) else {"PDL": False}


@no_type_check
@triton.jit
def await_previous(PDL: tl.constexpr):
    """Wait until all kernels before this one are done, and what they wrote can be read."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@no_type_check
@triton.jit
def let_next_start(PDL: tl.constexpr):
    """Let the next kernel be put in place once all programs of this one have come here."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@no_type_check
@triton.jit
def take_turn(PDL: tl.constexpr):
    """Begin a kernel whose programs are short, or which a small one follows."""
    await_previous(PDL)
    let_next_start(PDL)
