"""The state of a run, and the files that hold it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from earmark.checkpoint import check_tensors, read_tensors, write_tensors
from earmark.detector import Detector
from earmark.errors import ArgumentError, DataError, EarmarkError, MissingExtraError, ModelFileError
from earmark.files import json_text, make_folder
from earmark.formats.text import write_text
from earmark.schema import Names, Number, differences, parse, parse_json, record
from earmark.settings import Settings, Training, load_recipe
from earmark.training.averaging import Average
from earmark.training.validation import Tally

FILES = ("config.toml", "log.jsonl", "model.safetensors")
"""Files of a run besides `last.ckpt`."""
_MAY_CHANGE = {
    f"training.{name}" for name in ("epochs", "stop_epochs", "save_minutes", "precision", "compile", "tensorboard")
}
_MOMENTS = {"step", "exp_avg", "exp_avg_sq"}  # of Adam, for each parameter
_Count = Annotated[int, Field(ge=0, le=1 << 31)]
_WARM_UP, _FIRST = 0.3, 0.04  # of a one-cycle schedule: share of the run, and of the highest rate
_MIN_GAIN = 1e-4  # smaller improvements do not count for the learning rate, as in Keras


@dataclass
class Schedule:
    """Learning rate and early stopping, decided by one validation score, as in the paper (IV.C).

    Higher scores are better. Counters are those of Keras, which the authors used: the learning rate is reduced after
    `plateau_epochs` epochs without a gain of at least 1e-4, and the run ends after `stop_epochs` without any.

    Examples
    --------
    >>> schedule = Schedule(1e-3, plateau_epochs=2, plateau_factor=0.1, stop_epochs=3)
    >>> [(schedule.is_best(s), round(schedule.learning_rate, 9), schedule.is_over) for s in (0.5, 0.6, 0.6, 0.55, 0.58)]
    [(True, 0.001, False), (True, 0.001, False), (False, 0.001, False), (False, 0.0001, False), (False, 0.0001, True)]
    """

    learning_rate: float
    plateau_epochs: int
    plateau_factor: float
    stop_epochs: int
    best: float = -math.inf
    plateau_best: float = -math.inf
    since_best: int = 0
    since_plateau: int = 0

    @classmethod
    def of(cls, options: Training) -> Schedule:
        """The schedule of these settings; with one-cycle, nothing reduces the learning rate but the cycle."""
        factor = options.plateau_factor if options.schedule == "plateau" else 1.0
        return cls(options.learning_rate, options.plateau_epochs, factor, options.stop_epochs)

    def is_best(self, score: float) -> bool:
        """Update with the score of an epoch; whether it is the best so far."""
        if score > self.plateau_best + _MIN_GAIN:
            self.plateau_best, self.since_plateau = score, 0
        else:
            self.since_plateau += 1
            if self.since_plateau >= self.plateau_epochs:
                self.learning_rate *= self.plateau_factor
                self.since_plateau = 0
        if score > self.best:
            self.best, self.since_best = score, 0
            return True
        self.since_best += 1
        return False

    @property
    def is_over(self) -> bool:
        """Whether the score has not improved for `stop_epochs` epochs."""
        return self.since_best >= self.stop_epochs


def one_cycle(position: float) -> float:
    """Share of the highest learning rate at a position in the run, from 0 to 1: up in the first 30 %, then down to 0.

    >>> [round(one_cycle(position), 2) for position in (0.0, 0.15, 0.3, 0.65, 1.0)]
    [0.04, 0.52, 1.0, 0.5, 0.0]
    """
    if position < _WARM_UP:
        return _FIRST + (1 - _FIRST) * (1 - math.cos(math.pi * position / _WARM_UP)) / 2
    return (1 + math.cos(math.pi * (position - _WARM_UP) / (1 - _WARM_UP))) / 2


_SCORES = ("loss", "accuracy", "f1")  # of an epoch on the validation clips


@dataclass
class Memory:
    """State of a run besides weights and moments."""

    schedule: Schedule
    epoch: int = 0
    step: int = 0
    loss: float = 0.0  # sum over the steps of this epoch
    best_epoch: int = -1
    best_scores: dict[str, float] = field(default_factory=dict)

    def update_best(self, scores: dict[str, float], monitor: str) -> bool:
        """Record the validation scores of the epoch; whether they are the best so far."""
        rising = {**scores, "loss": -scores["loss"], "last": float(self.epoch)}  # larger is better
        is_best = self.schedule.is_best(rising[monitor])
        if is_best:
            self.best_epoch, self.best_scores = self.epoch, scores
        return is_best


@record
class _SavedSchedule:
    """A `Schedule` in `last.ckpt`; scores of minus infinity are left out."""

    learning_rate: Annotated[float, Field(gt=0)]
    plateau_epochs: Annotated[int, Field(ge=1)]
    plateau_factor: Annotated[float, Field(gt=0, le=1)]
    stop_epochs: Annotated[int, Field(ge=1)]
    since_best: _Count
    since_plateau: _Count
    best: float = Field(default=-math.inf, allow_inf_nan=True)
    plateau_best: float = Field(default=-math.inf, allow_inf_nan=True)


@record
class _SavedMemory:
    """A `Memory` in `last.ckpt`."""

    schedule: _SavedSchedule
    epoch: _Count
    step: _Count
    loss: float
    best_epoch: Annotated[int, Field(ge=-1)]
    best_scores: dict[str, Number]


@record
class _SavedState:
    """Metadata of `last.ckpt`."""

    kind: str
    version: int
    written_by: str
    tensors: str
    memory: _SavedMemory
    settings: dict[str, dict[str, Any]]
    classes: Names
    data: str | None = None


@record
class LogLine:
    """A line of `log.jsonl`: the numbers of an epoch."""

    epoch: Annotated[int, Field(ge=1, le=1 << 31)]
    best: bool
    validation: dict[str, Number] = Field(default_factory=dict)
    tally: Tally | None = None  # what the scores of validation are computed from
    loss: Number = None
    learning_rate: Number = None
    alpha: list[Number] | None = None
    clips_per_second: Number = None


def read_log(path: Path) -> list[LogLine]:
    """The lines of a run's `log.jsonl`, which have one epoch after another."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    log = [parse_json(LogLine, line, where=f"{path}: line {number}") for number, line in enumerate(lines, 1)]
    for before, line in pairwise(log):
        if line.epoch <= before.epoch:
            raise DataError(f"{path}: epoch: expected more than {before.epoch}, got {line.epoch}")
    return log


def check_folder(out: Path, *, resume: bool) -> bool:
    """Whether a folder contains a run to resume; an error if it holds one and `resume` is False."""
    # the first to be trained: with a teacher, there is no round 0
    folders = (out, *(out / part for part in ("round-0", "round-1", "fold-1", "fold-1/round-0")))
    has_run = any((folder / "last.ckpt").exists() for folder in folders)
    if has_run and not resume:
        remedy = "continue it with --resume (resume=True), or choose another folder"
        raise ArgumentError(f"{out} already contains a run; {remedy}")
    return has_run


def write_config(out: Path, settings: Settings) -> None:
    """Write `config.toml`, unless it has these settings already: a file that the user commented stays."""
    config = make_folder(out) / "config.toml"
    if not config.exists() or load_recipe(str(config)) != settings:
        write_text(config, settings.to_toml())


def save(
    out: Path,
    memory: Memory,
    settings: Settings,
    detector: Detector,
    optimizer: torch.optim.Optimizer,
    average: Average,
    data: str | None = None,
) -> None:
    """Write `last.ckpt`; `data` is the fingerprint of clips and labels."""
    tensors = {f"detector.{name}": tensor for name, tensor in detector.state_dict().items()}
    tensors |= {f"average.{name}": tensor for name, tensor in average.weights.items()}
    for i, p in enumerate(detector.parameters()):
        tensors |= {f"adam.{i}.{key}": value for key, value in optimizer.state.get(p, {}).items()}
    schedule = {name: value for name, value in vars(memory.schedule).items() if value != -math.inf}  # not in JSON
    about = {
        "memory": {**vars(memory), "schedule": schedule},
        "settings": settings.to_dict(),
        "classes": list(detector.classes),
        "data": data,
    }
    write_tensors(out / "last.ckpt", "training state", tensors, about)


def load_state(
    out: Path,
    settings: Settings,
    detector: Detector,
    optimizer: torch.optim.Optimizer,
    average: Average,
    data: str | None = None,
) -> Memory:
    """Load weights, moments and state of an interrupted run; an error if settings, classes or data have changed."""
    path = out / "last.ckpt"
    tensors, about = read_tensors(path, "training state", _SavedState)
    memory = _memory(path, about)
    _check_same(out, about["settings"], settings)
    if tuple(about["classes"]) != detector.classes:
        raise ArgumentError(f"{out} was trained on other classes: {', '.join(about['classes'])}")
    if None not in (data, about.get("data")) and about["data"] != data:
        raise ArgumentError(
            f"{out} was started with other clips or labels; resume with the same ones, or start in another folder"
        )
    try:
        weights, averaged, moments = _divided(tensors, detector)
    except ArgumentError as error:
        raise ModelFileError(f"{path}: its tensors do not match: {error}") from None
    detector.load_state_dict(weights)
    average.load(averaged)
    for i, p in enumerate(detector.parameters()):
        for name, value in moments.get(i, {}).items():
            # With the memory layout of its parameter (channels last), which the fused Adam of a GPU requires.
            like = p.detach() if value.shape == p.shape else value
            moment = torch.empty_like(like, dtype=value.dtype, device=p.device)
            optimizer.state[p][name] = moment.copy_(value)
    return memory


def unfinished_note(out: Path) -> str:
    """A note if the run in a folder has epochs left, because it was interrupted or is still training; else "".

    It is "" too if that is unknown: without a readable `last.ckpt`, and after cross-validation, which decides how many
    epochs are trained on all clips.
    """
    path = out / "last.ckpt"
    if not path.is_file() or (out / "fold-1").is_dir():
        return ""
    try:
        _, about = read_tensors(path, "training state", _SavedState, only_about=True)
        memory, epochs = _memory(path, about), _settings(about).training.epochs
    except EarmarkError:  # matters only to those who resume
        return ""
    if memory.epoch >= epochs or memory.schedule.is_over:
        return ""
    return f"training is not finished, {memory.epoch} of {epochs} epochs: continue it with earmark train ... --resume"


def _settings(about: dict[str, Any]) -> Settings:
    """The settings in the metadata of `last.ckpt`."""
    sections = {name: dict(section) for name, section in about["settings"].items()}
    if sections.get("training", {}).get("save_minutes", 0) is None:
        sections["training"]["save_minutes"] = math.inf  # not in JSON
    return parse(Settings, sections, where="settings")


def _memory(path: Path, about: dict[str, Any]) -> Memory:
    """The state in the metadata of `last.ckpt`, within the limits that its settings set."""
    try:
        steps = _settings(about).training.steps
        saved = parse(_SavedMemory, about["memory"], where="memory")
        if saved.step > steps:
            raise DataError(f"memory.step: expected at most {steps}, the steps of an epoch, got {saved.step}")
        if saved.best_epoch > saved.epoch:
            raise DataError(f"memory.best_epoch: expected at most {saved.epoch}, got {saved.best_epoch}")
        if missing := [name for name in _SCORES if saved.best_epoch >= 0 and name not in saved.best_scores]:
            raise DataError(f"memory.best_scores.{missing[0]}: expected a number, got nothing")
    except EarmarkError as error:
        raise ModelFileError(f"{path}: {error}") from None
    scores = {name: math.nan if value is None else value for name, value in saved.best_scores.items()}
    return Memory(Schedule(**vars(saved.schedule)), saved.epoch, saved.step, saved.loss, saved.best_epoch, scores)


def _divided(
    tensors: dict[str, Tensor], detector: Detector
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[int, dict[str, Tensor]]]:
    """Weights and averaged weights by name, and Adam's moments by parameter and name, checked."""
    state = detector.state_dict()
    rest = dict(tensors)

    def take(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): rest.pop(name) for name in tensors if name.startswith(prefix)}

    weights, averaged = take("detector."), take("average.")
    check_tensors(weights, state)
    if averaged:
        check_tensors(averaged, {name: tensor for name, tensor in state.items() if tensor.is_floating_point()})
    moments: dict[int, dict[str, Tensor]] = {}
    for i, p in enumerate(detector.parameters()):
        if saved := take(f"adam.{i}."):
            check_tensors(saved, {name: p if name != "step" else torch.zeros(()) for name in _MOMENTS})
            moments[i] = saved
    for name in rest:
        raise ArgumentError(f"unexpected tensor {name!r}")
    return weights, averaged, moments


class Log:
    """Writes `log.jsonl`, a line per epoch, and the log for TensorBoard where the settings ask for one.

    Creates the run folder with `config.toml`. Epochs after the first `epochs` are removed from an existing log.
    """

    def __init__(self, out: Path, settings: Settings, epochs: int) -> None:
        self._path = make_folder(out) / "log.jsonl"
        self._writer: Any = None
        if settings.training.tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise MissingExtraError("training.tensorboard", "tensorboard") from error
            self._writer = SummaryWriter(out / "tensorboard", purge_step=epochs + 1)
        lines: list[str] = []
        if self._path.exists():
            read_log(self._path)  # rejects a damaged one
            lines = self._path.read_text(encoding="utf-8").splitlines()[:epochs]
        write_text(self._path, "".join(line + "\n" for line in lines))
        write_config(out, settings)

    def append(
        self,
        memory: Memory,
        tally: Tally,
        learning_rate: float,
        detector: Detector,
        is_best: bool,
        clips_per_second: float,
    ) -> None:
        """Write the numbers of the current epoch."""
        epoch = memory.epoch + 1
        loss = memory.loss / max(memory.step, 1)
        alpha, scores = detector.alpha, tally.scores
        line = {
            "epoch": epoch,
            "loss": loss,
            "validation": scores,
            "tally": asdict(tally),
            "learning_rate": learning_rate,
            "best": is_best,
            "alpha": alpha,
            "clips_per_second": round(clips_per_second, 1),
        }
        write_text(self._path, self._path.read_text(encoding="utf-8") + json_text(line) + "\n")
        if self._writer:
            numbers = {"loss": loss, "learning_rate": learning_rate}
            numbers |= {f"validation/{name}": value for name, value in scores.items()}
            numbers |= {f"alpha/{label}": value for label, value in zip(detector.classes, alpha or (), strict=False)}
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, epoch)
            self._writer.flush()


def _check_same(out: Path, before: dict[str, Any], settings: Settings) -> None:
    may_change = _MAY_CHANGE - {"training.epochs"} if _depends_on_epochs(settings.training) else _MAY_CHANGE
    for name, (old, new) in differences(before, settings.to_dict()).items():
        if name not in may_change:
            raise ArgumentError(
                f"{out} was started with {name} = {old}, got {new}; resume with the same settings, or start in "
                "another folder"
            )


def _depends_on_epochs(options: Training) -> bool:
    """Whether what happens in an epoch depends on how many there are."""
    return options.schedule == "one-cycle" or options.average > 0
