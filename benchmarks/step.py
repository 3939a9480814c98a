"""Times of whole training steps: batch, forward, backward, clipping and update.

    PYTHONPATH=src python benchmarks/step.py --device auto --out FILE.json

On a GPU: the shipped experiments as CUDA graphs and as plain calls, and one full-batch step on
graphs of up to a million nodes. On a CPU: Peptides-func against the same model in plain PyTorch.
`must` and `goal` are the times that this project set itself for an H200.
"""

import argparse
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from graphmamba.bench.step import SHAPES, StepTimes, measure_captured, measure_plain
from graphmamba.bench.tables import table, write_json
from graphmamba.config import load_experiment
from graphmamba.data.catalog import Features, Task
from graphmamba.environment import describe, resolve_device
from graphmamba.stack.config import StackConfig
from graphmamba.task.losses import LOSSES
from graphmamba.task.model import GraphMamba

H200_TARGETS = {"peptides-func": (3.6, 3.0), "pascalvoc-sp": (4.7, 3.9), "pattern": (4.9, 4.0)}
"""Milliseconds of a training step on an H200 with TF32: must, goal."""
PUBLISHED_LAYERS_MS = {"peptides-func": 26.5, "pascalvoc-sp": 68.8, "malnet-tiny": 88.4}
"""The published layers alone, forward and backward, on an H200: an earlier run with mamba-ssm 2.3,
four layers on Peptides-func. Of the others nobody has measured it."""
LARGE = (100_000, 300_000, 1_000_000)
"""Nodes of the graphs that are trained on as a whole."""


@dataclass(frozen=True)
class LargeStep:
    """One step on one graph."""

    nodes: int
    edges: int
    channels: int
    layers: int
    ms: float
    peak_gib: float


def main() -> None:
    """Measure, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--sets", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--large", nargs="*", type=int, default=LARGE, help="nodes of large graphs")
    parser.add_argument("--plain", nargs="*", default=list(SHAPES), choices=list(SHAPES),
                        help="sets whose steps are timed as Python says too")  # fmt: skip
    parser.add_argument("--precisions", nargs="*", default=["32-true"], help="of compiled steps")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device, console = resolve_device(options.device), Console()
    times: list[StepTimes] = []
    large: list[LargeStep] = []
    if device.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        for name in options.sets:
            size = load_experiment(name).recipe.batch_size
            times += [
                measure_captured(SHAPES[name], device, size, precision=precision)
                for precision in options.precisions
            ]
            times.append(measure_captured(SHAPES[name], device, size, compiles=False))
            if name in options.plain:
                times.append(measure_plain(SHAPES[name], device, size))
            for one in times:
                if one.benchmark == name:
                    console.print(f"{name}: {one.kind} {one.train_ms:.3f} ms")
            # What is cut short leaves what it has.
            write_json(options.out, _content(device, options.commit, times, large))
        for nodes in options.large:
            large.append(measure_large(nodes, device))
            console.print(f"{nodes} nodes: {large[-1].ms:.1f} ms, {large[-1].peak_gib:.2f} GiB")
    else:
        # Plain PyTorch takes its time.
        shape = replace(SHAPES["peptides-func"], batches=1)
        times.append(measure_plain(shape, device, 32))
        times.append(measure_plain(shape, device, 32, is_reference=True))
    console.print(
        table(
            "Milliseconds a step",
            [
                *("set", "kind", "graphs", "nodes", "layers", "train", "must / goal", "evaluate"),
                *("MiB", "held"),
            ],
            (_row(one) for one in times),
        )
    )
    write_json(options.out, _content(device, options.commit, times, large))


def _content(
    device: torch.device, commit: str | None, times: list[StepTimes], large: list[LargeStep]
) -> dict[str, object]:
    return {
        "environment": describe(device, commit),
        "matmul": "tf32" if device.type == "cuda" else "float32",
        "times": times,
        "large": [asdict(one) for one in large],
        "h200_targets_ms": H200_TARGETS,
        "published_layers_ms": PUBLISHED_LAYERS_MS,
    }


def _row(one: StepTimes) -> list[str]:
    is_aimed = one.kind == "compiled" and one.benchmark in H200_TARGETS
    targets = " / ".join(map(str, H200_TARGETS[one.benchmark])) if is_aimed else ""
    memory = ["" if size is None else f"{size:.0f}" for size in (one.peak_mib, one.held_mib)]
    evaluate = "" if one.evaluate_ms is None else f"{one.evaluate_ms:.3f}"
    return [
        *(one.benchmark, one.kind, str(one.graphs), f"{one.nodes:,.0f}", str(one.layers)),
        *(f"{one.train_ms:.3f}", targets, evaluate, *memory),
    ]


def measure_large(nodes: int, device: torch.device, edges_a_node: int = 10) -> LargeStep:
    """Time one full-batch step on one random graph: classes of nodes, d 64, three layers."""
    from torch_geometric.data import Data

    generator = torch.Generator(device).manual_seed(0)
    edges = nodes * edges_a_node
    target = torch.arange(nodes, device=device).repeat_interleave(edges_a_node)
    source = torch.randint(nodes, (edges,), generator=generator, device=device)
    graph = Data(
        x=torch.randn(nodes, 16, generator=generator, device=device),
        edge_index=torch.stack([source, target]),
        # edges lie in the order of their targets; this is the order of their sources
        source_order=source.argsort(stable=True),
        y=torch.randint(10, (nodes,), generator=generator, device=device),
    )
    task = Task("node", 10, "cross_entropy", "accuracy", classes=10)
    stack = StackConfig(channels=64, layers=3)
    model = GraphMamba(Features(node_columns=16), task, stack).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    loss_of = LOSSES[task.loss]

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model(graph), graph.y).backward()
        optimizer.step()

    step()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    peak = torch.cuda.max_memory_allocated() / 2**30
    return LargeStep(nodes, edges, 64, 3, sorted(times)[1], peak)


if __name__ == "__main__":
    main()
