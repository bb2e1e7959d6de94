"""The state of a run, and the files that hold it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from earmark.checkpoint import read_tensors, write_tensors
from earmark.detector import Detector
from earmark.errors import ArgumentError
from earmark.files import json_text, make_folder, written_whole
from earmark.settings import Settings
from earmark.training.schedule import Schedule

__all__ = ["Memory", "begin", "check_folder", "load_state", "log", "save"]

_MAY_CHANGE = {"epochs", "stop_epochs", "save_minutes", "precision", "compile", "tensorboard"}


@dataclass
class Memory:
    """State of a run besides weights and moments."""

    schedule: Schedule
    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    """Sum over the steps of this epoch."""
    best_epoch: int = -1
    best_scores: dict[str, float] = field(default_factory=dict)

    def judge(self, scores: dict[str, float], monitor: str) -> bool:
        """Record the scores of the epoch; whether they are the best so far."""
        is_best = self.schedule.is_best(-scores["loss"] if monitor == "loss" else scores[monitor])
        if is_best:
            self.best_epoch, self.best_scores = self.epoch, scores
        return is_best

    def next_epoch(self) -> None:
        """Advance to the next epoch."""
        self.epoch, self.step, self.loss = self.epoch + 1, 0, 0.0

    def to_dict(self) -> dict[str, Any]:
        """State as plain JSON values."""
        return {**vars(self), "schedule": self.schedule.state()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Memory:
        """Restore from `to_dict`."""
        return cls(**{**values, "schedule": Schedule(**values["schedule"])})


def check_folder(out: Path, *, resume: bool) -> bool:
    """Whether there is a run to resume in a folder; an error where there is one and it is not to be resumed."""
    has_run = (out / "last.ckpt").exists()
    if has_run and not resume:
        raise ArgumentError(f"{out} already holds a run; continue it with --resume, or choose another folder")
    return has_run


def begin(out: Path, settings: Settings, epochs: int) -> None:
    """Prepare a run folder: its settings, and a log truncated to the epochs that are done."""
    path = make_folder(out) / "log.jsonl"
    lines = path.read_text().splitlines()[:epochs] if path.exists() else []
    with written_whole(path) as draft:
        draft.write_text("".join(line + "\n" for line in lines))
    with written_whole(out / "config.toml") as draft:
        draft.write_text(settings.to_toml())


def save(
    out: Path,
    memory: Memory,
    settings: Settings,
    detector: Detector,
    optimizer: torch.optim.Optimizer,
    data: str | None = None,
) -> None:
    """Write `last.ckpt`; `data` is the fingerprint of clips and labels."""
    tensors = {f"detector.{name}": tensor for name, tensor in detector.state_dict().items()}
    for i, p in enumerate(detector.parameters()):
        tensors |= {f"adam.{i}.{key}": value for key, value in optimizer.state.get(p, {}).items()}
    about = {
        "memory": memory.to_dict(),
        "settings": settings.to_dict(),
        "classes": list(detector.classes),
        "data": data,
    }
    write_tensors(out / "last.ckpt", "training state", tensors, about)


def load_state(
    out: Path, settings: Settings, detector: Detector, optimizer: torch.optim.Optimizer, data: str | None = None
) -> Memory:
    """Load weights, moments and state of an interrupted run; an error if settings, classes or data have changed."""
    tensors, about = read_tensors(out / "last.ckpt", "training state")
    _check_same(out, about["settings"], settings)
    if tuple(about["classes"]) != detector.classes:
        raise ArgumentError(f"{out} was trained on other classes: {', '.join(about['classes'])}")
    if None not in (data, about.get("data")) and about["data"] != data:
        raise ArgumentError(
            f"{out} was started with other clips or labels; resume with the same ones, or start in another folder"
        )
    detector.load_state_dict({k.removeprefix("detector."): v for k, v in tensors.items() if k.startswith("detector.")})
    for i, p in enumerate(detector.parameters()):
        for name, value in tensors.items():
            if name.startswith(f"adam.{i}."):
                # Laid out as its parameter (channels last), or the fused Adam of a GPU refuses it.
                like = p.detach() if value.shape == p.shape else value
                optimizer.state[p][name.split(".", 2)[2]] = torch.empty_like(
                    like, dtype=value.dtype, device=p.device
                ).copy_(value)
    return Memory.from_dict(about["memory"])


def log(
    out: Path,
    memory: Memory,
    scores: dict[str, float],
    learning_rate: float,
    detector: Detector,
    is_best: bool,
    clips_per_second: float,
) -> dict[str, Any]:
    """Append the epoch's line to `log.jsonl`, and return it."""
    line = {
        "epoch": memory.epoch + 1,
        "loss": memory.loss / max(memory.step, 1),
        "validation": scores,
        "learning_rate": learning_rate,
        "best": is_best,
        "alpha": detector.alpha,
        "clips_per_second": round(clips_per_second, 1),
    }
    path = out / "log.jsonl"
    before = path.read_text() if path.exists() else ""
    with written_whole(path) as draft:
        draft.write_text(before + json_text(line) + "\n")
    return line


def _check_same(out: Path, before: dict[str, Any], settings: Settings) -> None:
    for section, knobs in settings.to_dict().items():
        for key, value in knobs.items():
            old = before.get(section, {}).get(key)
            if json.dumps(old) != json.dumps(value) and key not in _MAY_CHANGE:
                raise ArgumentError(
                    f"{out} was started with {section}.{key} = {old}, got {value}; resume with the same settings, "
                    "or start in another folder"
                )
