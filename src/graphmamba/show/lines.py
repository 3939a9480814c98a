"""A run as plain lines of `key=value`, one an epoch: for logs and for other programs."""

import sys
from collections.abc import Mapping

from graphmamba.training.reporter import EpochRecord, Silent, StartRecord


class Lines(Silent):
    """Writes a line when a run starts and one after each epoch."""

    def on_start(self, start: StartRecord) -> None:
        """Say what is run, where and how large it is."""
        _write(
            {
                "run": start.folder,
                "data": start.experiment.data.title,
                "seed": start.options.seed,
                "device": start.device,
                "processes": start.processes,
                "parameters": start.parameters,
                **{f"{split}_graphs": count for split, count in start.graphs.items()},
                "epochs": start.epochs,
                "first_epoch": start.first_epoch,
            }
        )

    def on_epoch(self, record: EpochRecord) -> None:
        """Write what `metrics.csv` has of the epoch, and how long the rest will take."""
        left = (record.epochs - record.epoch - 1) * record.seconds
        _write(record.row() | {"epochs": record.epochs, "seconds_left": left})

    def close(self) -> None:
        """Nothing is open."""


def _write(entries: Mapping[str, object]) -> None:
    told = (f"{key}={_shown(value)}" for key, value in entries.items())
    sys.stdout.write(" ".join(told) + "\n")
    sys.stdout.flush()


def _shown(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if " " in text else text
