"""The training loop.

A run folder holds `config.toml`, `model.safetensors` (the best weights so far), `last.ckpt` (to go on from) and
`log.jsonl` (a line per epoch). Every file is written whole or not at all, in an order that lets a process be killed at
any moment: what `last.ckpt` says is done is done, and whatever came after it is done again, identically, since a batch
depends on nothing but the seed, the epoch and the step.

With several processes, each takes its share of every batch and gradients are averaged; one process writes. Batch
normalisation then sees each process's own share, and the first process's running statistics are kept. `freeze_norm`
takes it out of the picture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from earmark.bags import Bags
from earmark.checkpoint import save_detector
from earmark.detector import Detector
from earmark.errors import TrainingError
from earmark.interrupt import interruptible
from earmark.networks import create_network
from earmark.pooling import create_pool
from earmark.progress import OnProgress
from earmark.settings import Settings
from earmark.training.augmentation import augmented
from earmark.training.board import Board
from earmark.training.memory import Memory, begin, check_folder, load_state, log, save
from earmark.training.schedule import Schedule
from earmark.training.steps import Step, make_optimizer, set_learning_rate
from earmark.training.validation import validate
from earmark.training.watch import Watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Result", "create_detector", "train"]

_LOOK_EVERY = 50  # steps between looks at the loss: on a GPU a look is a wait


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    epochs: int
    best_epoch: int
    scores: dict[str, float]
    """Of the best epoch, on the validation clips."""
    is_finished: bool
    """False if it was interrupted and can be resumed, even if all epochs are done."""


def create_detector(settings: Settings, classes: tuple[str, ...]) -> Detector:
    """A detector as the settings say, freshly initialised from their seed."""
    network, pool = dict(settings.network), dict(settings.pool)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.training.seed)
        detector = Detector(
            classes,
            settings.features,
            create_network(network.pop("name"), settings.features.n_bands, **network),
            create_pool(pool.pop("name"), len(classes), **pool),
        )
    detector.pool.check_values = False  # what it gets are sigmoids, and a NaN shows in the loss
    detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # the order fast convolutions want
    return detector


def train(
    training: Bags,
    validation: Bags,
    settings: Settings,
    out: Path,
    *,
    fabric: Fabric,
    resume: bool = False,
    provenance: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Train a detector.

    Parameters
    ----------
    training, validation
        Bags to learn from, and bags to decide by.
    settings
        Of the run.
    out
        The run folder.
    fabric
        The device or devices, and the precision.
    resume
        Whether to resume from `out/last.ckpt`, where there is one.
    provenance
        What the model file is to say about where it came from.
    on_progress
        Called with `TrainingProgress` now and then.
    """
    is_resumed = check_folder(out, resume=resume)
    knobs, data = settings.training, (provenance or {}).get("data")
    detector = create_detector(settings, training.classes).to(fabric.device)
    optimizer = make_optimizer(detector, knobs.learning_rate, fabric.device, alpha_rate=knobs.alpha_rate)
    memory = Memory(Schedule(knobs.learning_rate, knobs.plateau_epochs, knobs.plateau_factor, knobs.stop_epochs))
    if is_resumed:
        memory = load_state(out, settings, detector, optimizer, data)
    if fabric.is_global_zero:
        begin(out, settings, memory.epoch)
    module, wrapped = fabric.setup(detector, optimizer)
    step = Step(fabric, module, detector, wrapped, settings, compiled=_pays_to_compile(fabric, settings))
    board = Board(out, memory.epoch) if knobs.tensorboard and fabric.is_global_zero else None
    watch = Watch(knobs.epochs, knobs.steps, knobs.batch_size, on_progress)

    def keep() -> None:
        if fabric.is_global_zero:
            save(out, memory, settings, detector, optimizer, data)

    with interruptible() as interruption:
        watch.started(memory.epoch, memory.step)
        while memory.epoch < knobs.epochs and not memory.schedule.is_over:
            set_learning_rate(optimizer, memory.schedule.learning_rate)
            _set_mode(detector, knobs.freeze_norm)
            for loss in _steps(step, training, settings, memory, fabric):
                watch.stepped(memory.epoch, memory.step)
                # Several processes look, and speak to each other, at the same steps alone: else one waits for ever.
                if not _look_is_due(memory.step, knobs.steps) and not (fabric.world_size == 1 and interruption):
                    continue
                memory.loss += _finite(_mean(loss(), fabric), memory, out)
                watch.looked(memory.loss / memory.step)
                stop = _agreed(bool(interruption), fabric) and memory.step < knobs.steps
                if stop or watch.since_saving > 60 * knobs.save_minutes:
                    keep()
                    watch.saved()
                if stop:
                    return Result(memory.epoch, memory.best_epoch, memory.best_scores, is_finished=False)
            scores = validate(detector, validation, knobs, fabric)
            rate = memory.schedule.learning_rate
            is_best = memory.judge(scores, knobs.monitor)
            if fabric.is_global_zero:
                if is_best:
                    about = {**(provenance or {}), "epoch": memory.epoch + 1, "scores": scores, "seed": knobs.seed}
                    about["patch"] = knobs.patch
                    path = out / "model.safetensors"
                    save_detector(path, detector, network=settings.network, pool=settings.pool, provenance=about)
                line = log(out, memory, scores, rate, detector, is_best, watch.clips_per_second)
                if board:
                    numbers = {"loss": line["loss"], "learning_rate": rate}
                    validated = {f"validation/{name}": value for name, value in scores.items()}
                    board.log(line["epoch"], numbers | validated, detector.classes, line["alpha"])
            watch.validated(scores[knobs.monitor])
            memory.next_epoch()
            keep()
            watch.saved()
        stop = _agreed(bool(interruption), fabric)  # too late for this run, but the caller may have more to do
    return Result(memory.epoch, memory.best_epoch, memory.best_scores, is_finished=not stop)


def _steps(
    step: Step, training: Bags, settings: Settings, memory: Memory, fabric: Fabric
) -> Iterator[Callable[[], float]]:
    """Do the steps of an epoch that are still to do; each yields what sums the losses since last asked."""
    knobs = settings.training
    batches = training.draw(
        knobs.steps,
        knobs.batch_size,
        patch=knobs.patch,
        seed=knobs.seed,
        epoch=memory.epoch,
        first=memory.step,
        balanced=knobs.balanced,
        min_share=knobs.min_share,
        with_frames=knobs.supervision != "weak",
        part=(fabric.global_rank, fabric.world_size),
    )
    total = torch.zeros((), device=fabric.device, dtype=torch.float64)

    def take() -> float:
        value = float(total)
        total.zero_()
        return value

    for batch in batches:
        key = (knobs.seed, memory.epoch, memory.step, fabric.global_rank)
        total += step(augmented(batch, settings.augment, key))
        memory.step += 1
        yield take


def _look_is_due(step: int, steps: int) -> bool:
    return step % _LOOK_EVERY == 0 or step == steps


def _mean(loss: float, fabric: Fabric) -> float:
    """Over all processes, so that all see it if one of them has no number."""
    if fabric.world_size == 1:
        return loss
    own = torch.tensor(loss, dtype=torch.float64, device=fabric.device)
    return float(torch.as_tensor(fabric.all_reduce(own, reduce_op="mean")))


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
            if isinstance(module, nn.BatchNorm2d):
                module.eval()


def _pays_to_compile(fabric: Fabric, settings: Settings) -> bool:
    """Compiling takes about a minute and saves about a third of a GPU's time per step."""
    knobs = settings.training
    if knobs.compile != "auto":
        return knobs.compile == "yes"
    return fabric.device.type == "cuda" and knobs.epochs * knobs.steps * knobs.batch_size > 500_000


def _agreed(stop: bool, fabric: Fabric) -> bool:
    """Whether any process was asked to stop; then all do."""
    if fabric.world_size == 1:
        return stop
    flag = torch.tensor(float(stop), device=fabric.device)
    return bool(fabric.all_reduce(flag, reduce_op="sum"))
