"""The training loop.

A run folder holds `config.toml`, `model.safetensors` (the best weights so far), `last.ckpt` (to resume from) and
`log.jsonl` (a line per epoch). Files are written atomically, in an order that lets a process be killed at any moment:
what `last.ckpt` records is complete, and everything after it is repeated identically, since a batch depends only on the
seed, the epoch and the step.

With several processes, each takes its share of every batch and gradients are averaged; one process writes. Batch
normalisation then uses the statistics of each process's share, and the running statistics of the first process are
kept; `freeze_norm` avoids both.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from earmark.bags import Bags
from earmark.checkpoint import load_weights, save_detector
from earmark.detector import Detector
from earmark.errors import TrainingError
from earmark.fine_tuning import network_for
from earmark.interrupt import interruptible
from earmark.networks import FrameNorm
from earmark.pooling import create_pool
from earmark.progress import OnProgress, ignore_progress
from earmark.settings import WITHOUT_TIMES, Settings, Training
from earmark.tables import import_pandas
from earmark.training.averaging import Average
from earmark.training.memory import Log, Memory, Schedule, check_folder, load_state, one_cycle, read_log, save
from earmark.training.steps import Step, augmented, make_optimizer, set_learning_rate
from earmark.training.validation import Tally, validate
from earmark.training.watch import Watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from pandas import DataFrame

_DROPOUT = 1  # distinguishes draws inside the network from those of augmentation
_READ_LOSS_EVERY = 50  # steps; on a GPU, reading the loss waits for all previous steps


@dataclass(frozen=True)
class Run:
    """A training run. It can be used wherever the path of a run folder is expected."""

    path: Path
    epochs: int  # that are done
    best_epoch: int  # whose weights `model.safetensors` holds, counted from 1; 0 if there is none yet
    scores: dict[str, float]  # of the best epoch, on the validation clips
    monitor: str  # the score that decides which epoch is best
    is_finished: bool  # False if training was interrupted and can be resumed, even if all epochs are done
    notes: tuple[str, ...] = ()  # what the user should know about the data, a line each
    warnings: tuple[str, ...] = ()  # why the model should not be used, a line each
    thresholds: str = ""  # those that were chosen for the model file, or why none were
    folds: int = 0  # of cross-validation, whose scores these are; the model was trained on all clips

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        if not self.scores:
            return "No model yet"
        state = "" if self.is_finished else " (interrupted)"
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        kept = "Last epoch" if self.monitor == "last" else f"Best epoch by {self.monitor}"
        how = f"{self.folds}-fold cross-validation" if self.folds else "validation"
        done = "" if self.monitor == "last" and state else f" of {self.epochs}"  # it is unknown how many there will be
        best = f"{kept}: {self.best_epoch}{done}{state}; {how} {scores}"
        warnings = [f"Warning: {warning}" for warning in self.warnings]
        thresholds = [f"Thresholds: {self.thresholds}"] if self.thresholds else []
        return "\n".join([best, *warnings, *thresholds, f"Model: {self.path / 'model.safetensors'}"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """The attributes as plain values."""
        return {**vars(self), "path": str(self.path), "notes": list(self.notes), "warnings": list(self.warnings)}

    def to_pandas(self) -> DataFrame:
        """The log of the run: one row per epoch."""
        log = read_log(self.path / "log.jsonl")
        return import_pandas().json_normalize([asdict(line) for line in log])


class TrainingInterrupted(KeyboardInterrupt):
    """Training was interrupted, for example by Ctrl-C; its state is saved. `run` can be resumed."""

    def __init__(self, message: str, run: Run) -> None:
        super().__init__(message)
        self.run = run


def create_detector(settings: Settings, classes: tuple[str, ...]) -> Detector:
    """A detector with the network and pool of the settings, initialised with their seed."""
    pool = dict(settings.pool)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.training.seed)
        detector = Detector(
            classes,
            settings.features,
            network_for(settings.features, settings.network, pretrained=True),
            create_pool(pool.pop("name"), len(classes), **pool),
        )
    prior = settings.training.prior
    nn.init.constant_(detector.head.bias, math.log(prior / (1 - prior)))
    if settings.training.start is not None:
        load_weights(detector, settings.training.start)
    detector.pool.check_values = False  # inputs are sigmoids, and a NaN shows in the loss
    detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster convolutions
    return detector


def train(
    training: Bags,
    validation: Bags | Sequence[Tally],
    settings: Settings,
    out: Path,
    *,
    fabric: Fabric,
    resume: bool = False,
    provenance: dict[str, Any] | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Run:
    """Train a detector on bags, and choose the best epoch on validation bags.

    Parameters
    ----------
    validation
        Bags on which the learning rate, the last and the best epoch are chosen; or the tallies of each epoch from
        cross-validation with the same settings. Training then ends with the last epoch that has a tally.
    fabric
        The device or devices, and the precision.
    resume
        Whether to resume from `last.ckpt` in the run folder `out`, if there is one.
    provenance
        Further entries for the model file's record of its origin; `data` identifies clips and labels.
    on_progress
        Called with `TrainingProgress`.
    """
    is_resumed = check_folder(out, resume=resume) and (out / "last.ckpt").exists()
    options, about = settings.training, provenance or {}
    detector = create_detector(settings, training.classes).to(fabric.device)
    optimizer = make_optimizer(detector, options, fabric.device)
    average = Average(detector, options)
    memory = Memory(Schedule.of(options))
    if is_resumed:
        memory = load_state(out, settings, detector, optimizer, average, about.get("data"))
    log = Log(out, settings, memory.epoch) if fabric.is_global_zero else None
    save_state = partial(save, out, memory, settings, detector, optimizer, average, about.get("data"))
    module, wrapped = fabric.setup(detector, optimizer)
    step = Step(fabric, module, detector, wrapped, settings, is_taught=training.is_taught)
    saved = time.monotonic()
    with interruptible() as interruption:
        watch = Watch(options, memory.epoch, memory.step, on_progress)
        while memory.epoch < _most_epochs(options, validation) and not memory.schedule.is_over:
            set_learning_rate(optimizer, memory.schedule.learning_rate)
            _set_mode(detector, options.freeze_norm)
            for loss in _steps(step, training, settings, memory, fabric):
                watch.stepped(memory.epoch, memory.step)
                # Processes communicate whenever they read the loss, so all must read it at the same steps.
                is_due = memory.step % _READ_LOSS_EVERY == 0 or memory.step == options.steps
                if not is_due and not (fabric.world_size == 1 and interruption):
                    continue
                memory.loss += _finite(_reduced(loss(), "mean", fabric), memory, out)
                watch.loss_read(memory.loss / memory.step)
                stop = _reduced(float(bool(interruption)), "sum", fabric) > 0 and memory.step < options.steps
                if log and (stop or time.monotonic() - saved > 60 * options.save_minutes):
                    save_state()
                    saved = time.monotonic()
                if stop:
                    return _result(out, memory, options, is_finished=False)
            average.update(memory.epoch)
            with average.applied():
                tally = _tally(detector, validation, memory.epoch, options, fabric)
                is_best = memory.update_best(tally.scores, options.monitor)
                if is_best and log:
                    _save_model(out, detector, settings, {**about, "epoch": memory.epoch + 1, "scores": tally.scores})
            if log:
                rate = float(optimizer.param_groups[0]["lr"])  # of the last step
                log.append(memory, tally, rate, detector, is_best, watch.clips_per_second)
            watch.validated(tally.scores["f1" if options.monitor == "last" else options.monitor])
            memory.epoch, memory.step, memory.loss = memory.epoch + 1, 0, 0.0
            if log:
                save_state()
                saved = time.monotonic()
        # too late for this run, but the caller may have more to do
        stop = _reduced(float(bool(interruption)), "sum", fabric) > 0
    return _result(out, memory, options, is_finished=not stop)


def _most_epochs(options: Training, validation: Bags | Sequence[Tally]) -> int:
    return options.epochs if isinstance(validation, Bags) else min(options.epochs, len(validation))


def _tally(
    detector: Detector, validation: Bags | Sequence[Tally], epoch: int, options: Training, fabric: Fabric
) -> Tally:
    return validate(detector, validation, options, fabric) if isinstance(validation, Bags) else validation[epoch]


def _save_model(out: Path, detector: Detector, settings: Settings, about: dict[str, Any]) -> None:
    here = {"seed": settings.training.seed, "patch": settings.training.patch}
    parts = {"network": settings.network, "pool": settings.pool}
    save_detector(out / "model.safetensors", detector, **parts, provenance={**about, **here})


def _result(out: Path, memory: Memory, options: Training, *, is_finished: bool) -> Run:
    return Run(out, memory.epoch, memory.best_epoch + 1, memory.best_scores, options.monitor, is_finished)


def _steps(
    step: Step, training: Bags, settings: Settings, memory: Memory, fabric: Fabric
) -> Iterator[Callable[[], float]]:
    """Take the remaining steps of an epoch; yields a function that returns the sum of losses since its last call."""
    options = settings.training
    batches = training.draw(
        options.steps,
        options.batch_size,
        patch=options.patch,
        seed=options.seed,
        epoch=memory.epoch,
        first=memory.step,
        balanced=options.balanced,
        min_share=options.min_share,
        with_frames=training.is_taught or options.supervision not in WITHOUT_TIMES,
        part=(fabric.global_rank, fabric.world_size),
    )
    total = torch.zeros((), device=fabric.device, dtype=torch.float64)

    def take() -> float:
        value = float(total)
        total.zero_()
        return value

    for batch in batches:
        if options.schedule == "one-cycle":
            position = (memory.epoch * options.steps + memory.step) / (options.epochs * options.steps)
            set_learning_rate(step.optimizer, options.learning_rate * one_cycle(position))
        key = (options.seed, memory.epoch, memory.step, fabric.global_rank)
        with _seeded(key) if step.has_dropout else nullcontext():
            total += step(augmented(batch, settings.augment, key))
        memory.step += 1
        yield take


@contextmanager
def _seeded(key: tuple[int, ...]) -> Iterator[None]:
    """Seed PyTorch's global generator, which dropout draws from, with a key for the duration of the block."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence((*key, _DROPOUT)).generate_state(1)[0]))
        yield


def _reduced(value: float, operation: str, fabric: Fabric) -> float:
    """The mean or sum over all processes; all get the same value, even if it is NaN in one of them."""
    if fabric.world_size == 1:
        return value
    tensor = torch.tensor(value, dtype=torch.float64, device=fabric.device)
    return float(torch.as_tensor(fabric.all_reduce(tensor, reduce_op=operation)))


def _finite(loss: float, memory: Memory, out: Path) -> float:
    if not math.isfinite(loss):
        raise TrainingError(
            f"the loss became {loss} in epoch {memory.epoch + 1} before step {memory.step}; {out} keeps the state "
            "before that. Try a smaller learning_rate"
        )
    return loss


def _set_mode(detector: Detector, freeze_norm: bool) -> None:
    detector.train()
    if freeze_norm:
        for module in detector.modules():
            if isinstance(module, nn.BatchNorm2d | FrameNorm):
                module.eval()
