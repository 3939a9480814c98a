"""Two processes that normalise together, against one that has all rows."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed

from graphmamba.nn.norm import BatchNorm, sync_norms

ROWS = 20, 11


def rows() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(sum(ROWS), 3, dtype=torch.float64), torch.randn(sum(ROWS), 3).double()


def work(rank: int, folder: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    norm = torch.nn.Sequential(BatchNorm(3)).double()
    sync_norms(norm)
    x, grad = (part.split(ROWS)[rank] for part in rows())
    x = x.clone().requires_grad_()
    # The second process has ghosts behind its rows.
    ghosts = torch.full((4 * rank, 3), torch.nan, dtype=torch.float64)
    count = torch.tensor(ROWS[1]) if rank else None
    out = norm[0](torch.cat([x, ghosts]), count)[: ROWS[rank]]
    out.backward(grad)
    result = {"y": out.detach(), "dx": x.grad, **dict(norm.named_buffers())}
    save_file({name: values.contiguous() for name, values in result.items()}, f"{folder}/{rank}")
    distributed.destroy_process_group()


def compare() -> None:
    norm = torch.nn.Sequential(BatchNorm(3)).double()
    x, grad = rows()
    x.requires_grad_()
    out = norm(x)
    out.backward(grad)
    truth = {"y": out.detach(), "dx": x.grad}
    os.environ["OMP_NUM_THREADS"] = "1"
    with TemporaryDirectory() as folder:
        mp.spawn(work, (folder,), nprocs=2)
        parts = [load_file(Path(folder) / str(rank)) for rank in range(2)]
    for name, value in truth.items():
        torch.testing.assert_close(torch.cat([part[name] for part in parts]), value)
    for part in parts:
        for name, buffer in norm.named_buffers():
            torch.testing.assert_close(part[name], buffer)
