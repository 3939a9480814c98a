"""The training loop: steps, epochs, evaluation after every epoch, checkpoints."""

import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch

from graphmamba.data.neighbor_sampling import NeighbourStore
from graphmamba.data.store import GraphStore
from graphmamba.environment import describe
from graphmamba.errors import UserError
from graphmamba.training.batch_norm import BatchNormRecalibration
from graphmamba.training.checkpoint import Best, RunState, save_weights
from graphmamba.training.compile import compile_now
from graphmamba.training.evaluate import Scorer, labels_per_graph
from graphmamba.training.metrics import LOWER_IS_BETTER
from graphmamba.training.progress import EpochRecord, Reporter, StepRecord
from graphmamba.training.run_dir import (
    RunDir,
    RunResult,
    Scores,
    StopReason,
    append_row,
    write_config,
)
from graphmamba.training.schedule import set_rate
from graphmamba.training.step import TrainStep, kept_buffers
from graphmamba.training.stop import NonFiniteCheck, StopSignals

VOTE_EVERY = 16
"""Steps between two votes of all processes on whether to stop or save."""


@dataclass
class Loop:
    """One run, from its current state to its end."""

    state: RunState
    store: GraphStore
    step: TrainStep
    watch: NonFiniteCheck
    stops: StopSignals
    run_dir: RunDir
    reporters: Sequence[Reporter]
    is_captured: bool = False
    """Whether evaluation runs as CUDA graphs."""

    def __post_init__(self) -> None:
        state = self.state
        self._scorer = Scorer(
            state.scored,
            self.store,
            state.experiment,
            state.options.precision,
            self.is_captured,
            state.team,
        )
        self._statistics = (
            BatchNormRecalibration(
                state.scored,
                self.store,
                state.experiment,
                seed=state.options.seed,
                precision=state.options.precision,
                is_captured=self.is_captured,
            )
            if state.experiment.train.recalibrate_batch_norm
            else None
        )
        self._labels = labels_per_graph(self.store, state.model.task.level, "train")
        self._earlier = state.progress.seconds

    def begin(self) -> None:
        """Write the configuration and the first checkpoint: from now on the run can be resumed."""
        state, config = self.state, self.run_dir.config
        state.team.rank_zero_first(lambda: write_config(config, state.experiment, state.options))
        self._save()

    def compile(self) -> None:
        """Compile kernels, and the model if that was decided; continue without if it fails."""
        state = self.state
        if self.is_captured:
            self.compile_kernels()
        if state.options.compile == "off":
            return
        models = [state.model] if state.average is None else [state.model, state.average.model]
        why_not = compile_now(models, self.step.warm_up)
        if why_not is not None and state.options.cuda_graph == "on":
            raise UserError(
                f"cuda_graph must be 'auto' or 'off', since torch.compile failed: {why_not}"
            )
        if why_not is not None:
            told = f"torch.compile failed, and the run goes on without: {why_not}"
            warnings.warn(told, stacklevel=2)

    def compile_kernels(self) -> None:
        """Compile all Triton kernels of captured steps and evaluations in parallel.

        Otherwise they would be compiled one after another, each at its first launch.
        """
        from graphmamba.ops.precompile import collected_kernels, compile_kernels

        state, begin = self.state, time.monotonic()

        def tell(done: int, kernels: int) -> None:
            for reporter in self.reporters:
                reporter.on_compile(done, kernels, time.monotonic() - begin)

        def compile_found() -> None:
            state.model.train()
            with collected_kernels() as kernels, kept_buffers(state.scored):
                self.step.dry_run()
                self._scorer.dry_run(("validation", "test"))
                if self._statistics:
                    self._statistics.dry_run()
            compile_kernels(kernels, len(os.sched_getaffinity(0)), tell)

        try:
            # other processes find the compiled kernels on disk
            state.team.rank_zero_first(compile_found)
        except Exception as error:  # compilers raise whatever they meet
            why = (str(error).strip().splitlines() or [type(error).__name__])[0]
            warnings.warn(f"kernels are compiled one by one as they are used: {why}", stacklevel=2)

    def run(self) -> RunResult:
        """Train until the last epoch or a reason to stop; then write checkpoint and results."""
        state, progress, train = self.state, self.state.progress, self.state.experiment.train
        patience = state.options.early_stopping
        if patience is None:
            patience = train.early_stopping
        stop_reason: StopReason | None = None
        while stop_reason is None:
            if progress.epoch >= train.epochs:
                stop_reason = "finished"
            elif 0 < patience < progress.epoch - progress.best_epoch:
                stop_reason = "early stopping"
            else:
                stop_reason = self._train_epoch() or self._score_epoch()
        self._save()
        result = RunResult(
            run_dir=self.run_dir.path,
            seed=state.options.seed,
            metric=state.model.task.metric,
            best_epoch=progress.best_epoch,
            scores=progress.best.scores if progress.best else {},
            epochs=progress.epoch,
            stop_reason=stop_reason,
            parameters=state.parameters,
            seconds=progress.seconds,
            peak_memory=peak_memory(state.team.device),
            environment=describe(state.team.device),
            is_sampled=isinstance(self.store.scored, NeighbourStore),
        )
        if state.team.is_first:
            self.run_dir.write_results(result)
        return result

    def _train_epoch(self) -> StopReason | None:
        """Run the remaining steps of this epoch; returns the stop reason if interrupted."""
        progress, sampler = self.state.progress, self.state.sampler
        schedule, optimizer = self.state.schedule, self.state.optimizer
        rate = -1.0
        self.state.model.train()
        epoch, begin, steps = progress.epoch, time.monotonic(), len(sampler)
        before = progress.train_seconds
        for ids in sampler:
            if (due := schedule.rate(progress.epoch, progress.step, steps)) != rate:
                set_rate(optimizer, rate := due)
            loss = self.step.step(ids)
            labels = int(self._labels[ids].sum())
            # reads nothing from the device
            progress.loss_sum += loss.double() * labels
            progress.labels += labels
            progress.step += 1
            progress.taken += 1
            progress.train_seconds = before + time.monotonic() - begin
            self.watch.saw(progress.taken, ids, loss)
            if self.state.team.is_first:
                graphs = len(ids) * self.state.team.world
                record = StepRecord(epoch, progress.step, steps, graphs, loss)
                for reporter in self.reporters:
                    reporter.on_step(record)
            # between the last step and the scores there is nothing that could be resumed
            if progress.step < steps and (stop_reason := self._interruption()):
                return stop_reason
        self.watch.check()
        progress.train_seconds = before + time.monotonic() - begin
        return None

    def _interruption(self) -> StopReason | None:
        """Save a checkpoint if one is due; returns the reason to stop, or None."""
        team, stops = self.state.team, self.stops
        if team.world > 1 and self.state.progress.step % VOTE_EVERY:
            return None
        signalled, interrupted, over, due = team.agree(
            [stops.is_signalled, stops.is_interrupted, stops.is_over, stops.is_save_due]
        )
        if signalled or over:
            return "interrupt" if interrupted else "signal" if signalled else "max time"
        if due:
            self._save()
        return None

    def _score_epoch(self) -> StopReason | None:
        """Evaluate, keep the best weights, write and report; returns a stop reason or None."""
        state, progress = self.state, self.state.progress
        begin = time.monotonic()
        sums = torch.stack([progress.loss_sum, torch.full_like(progress.loss_sum, progress.labels)])
        loss_sum, labels = state.team.sum(sums).tolist()
        train_loss = loss_sum / labels if labels else math.nan
        if self._statistics:
            self._statistics.take()
        # last, since each process has dropped other entries while it took them
        state.team.share_buffers(state.scored)
        validation, test = (
            self._scorer.score(split, partial(self._tell, split) if state.team.is_first else None)
            for split in ("validation", "test")
        )
        if state.team.is_first:
            # other metrics may be NaN on a small split
            chosen = {name: validation[name] for name in ("loss", state.model.task.metric)}
            self.watch.saw_scores(progress.epoch, chosen)
        is_best = self._choose(train_loss, validation, test)
        state.schedule.observe(validation["loss"])
        record = EpochRecord(
            epoch=progress.epoch,
            epochs=state.experiment.train.epochs,
            learning_rate=float(state.optimizer.param_groups[0]["lr"]),
            train_loss=train_loss,
            validation=validation,
            test=test,
            is_best=is_best,
            best_epoch=progress.best_epoch,
            train_seconds=progress.train_seconds,
            seconds=progress.train_seconds + time.monotonic() - begin,
            graphs_per_second=len(state.sampler.ids) / max(progress.train_seconds, 1e-9),
            memory=peak_memory(state.team.device),
        )
        progress.epoch, progress.step = progress.epoch + 1, 0
        progress.labels, progress.train_seconds = 0, 0.0
        progress.loss_sum = torch.zeros_like(progress.loss_sum)
        state.team.rank_zero_first(lambda: append_row(self.run_dir.metrics, record.row()))
        # a chosen epoch is worth a state: on a GPU it would not come again to the last bit
        if is_best:
            self._save()
        if state.team.is_first:
            for reporter in self.reporters:
                reporter.on_epoch(record)
        return self._interruption() if progress.epoch < record.epochs else None

    def _tell(self, split: str, done: int, batches: int) -> None:
        for reporter in self.reporters:
            reporter.on_evaluate(split, done, batches)

    def _choose(self, train_loss: float, validation: Scores, test: Scores) -> bool:
        """Keep the weights if this epoch has the best validation score so far."""
        state, progress = self.state, self.state.progress
        metric = state.model.task.metric
        value = validation[metric]
        sign = -1 if metric in LOWER_IS_BETTER else 1
        # NaN beats nothing
        if math.isnan(value) or (progress.best and sign * value <= sign * progress.best.value):
            return False
        scores = {"train": {"loss": train_loss}, "validation": validation, "test": test}
        weights = {
            name: each.detach().cpu().clone() for name, each in state.scored.state_dict().items()
        }
        progress.best = Best(progress.epoch, value, scores, weights)
        self.write_best()
        return True

    def write_best(self) -> None:
        """Write the best weights, if there are any; all processes have to call it."""
        best = self.state.progress.best
        if best is None:
            return
        write = partial(
            save_weights,
            self.run_dir.best,
            self.state.model,
            self.state.experiment,
            state=best.weights,
            class_names=self.state.experiment.dataset_info.names,
            options=self.state.options,
            epoch=best.epoch,
            scores=best.scores,
            graphs=self.state.graphs,
        )
        self.state.team.rank_zero_first(write)

    def _save(self) -> None:
        self.watch.check()
        self.state.progress.seconds = self._earlier + self.stops.seconds
        self.state.save(self.run_dir.state)
        self.stops.saved()


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes: of the GPU's allocator, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kibibytes, macOS in bytes
    return peak if sys.platform == "darwin" else peak * 1024
