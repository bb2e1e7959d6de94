"""A run from data to model: splits, features, bags, training, and notes about the data."""

from __future__ import annotations

import atexit
import gc
import hashlib
import html
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from earmark.bags import SLACK, Bags, FeatureStore, build_store
from earmark.datasets import Collection
from earmark.datasets.base import FOLDER_NAMES
from earmark.datasets.checks import check_examples, check_labels, check_times, refuse_without_negatives
from earmark.errors import DataError
from earmark.features import FeatureConfig
from earmark.progress import OnProgress
from earmark.settings import Augmentation, Settings
from earmark.text import first_few
from earmark.training.loop import train

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from pandas import DataFrame

__all__ = ["Run", "data_fingerprint", "feature_store", "launch", "make_fabric", "run", "split_for_training"]

_HELD_OUT = 10  # one in so many training clips decides, where a data set names no validation clips


@dataclass(frozen=True)
class Run:
    """A training run. It can be used wherever the path of a run folder is expected.

    Attributes
    ----------
    path
        The run folder.
    epochs, best_epoch
        Epochs done, and the one whose weights `model.safetensors` holds, counted from 1; 0 if there is none yet.
    scores
        Of the best epoch, on the validation clips.
    monitor
        The score that decides which epoch is best.
    is_finished
        False if training was interrupted and can be resumed.
    notes
        What the user should know about the data, a line each.
    """

    path: Path
    epochs: int
    best_epoch: int
    scores: dict[str, float]
    monitor: str
    is_finished: bool
    notes: tuple[str, ...] = ()

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        if not self.scores:
            return f"{self.path}: no epoch finished yet"
        state = "" if self.is_finished else "interrupted; "
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        best = f"best epoch by {self.monitor} {self.best_epoch} of {self.epochs}"
        return f"{self.path}: {state}{best}; validation {scores}"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(str(self))}</p>"

    def to_dict(self) -> dict[str, Any]:
        """The attributes as plain values."""
        return {**vars(self), "path": str(self.path), "notes": list(self.notes)}

    def to_pandas(self) -> DataFrame:
        """The log of the run: one row per epoch."""
        import pandas

        lines = (self.path / "log.jsonl").read_text(encoding="utf-8").splitlines()
        return pandas.json_normalize([json.loads(line) for line in lines])


def make_fabric(settings: Settings, *, devices: int | None = None, nodes: int = 1) -> Fabric:
    """The machine, or machines, as Lightning Fabric sees them.

    One device unless told otherwise. Started by torchrun or SLURM, it takes its place among the processes there are.
    """
    import logging
    import os

    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it greets
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.set_float32_matmul_precision("high")
    count = devices or int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    has_bf16 = on_gpu and torch.cuda.is_bf16_supported()
    wanted = settings.training.precision
    half = wanted == "bf16" or (wanted == "auto" and has_bf16)
    fabric = Fabric(
        accelerator="cuda" if on_gpu else "cpu",
        devices=count,
        num_nodes=nodes,
        strategy="ddp" if count * nodes > 1 else "auto",
        precision="bf16-mixed" if half else "32-true",
    )
    launch(fabric)
    return fabric


def launch(fabric: Fabric) -> None:
    """Start the processes, or join them, and leave them in good order when this one ends.

    Threads of the group that outlive the interpreter would end the process with a signal, and torchrun calls that a
    failure. They end with the group, which is gone when nobody holds it: neither torch nor a wrapped model.
    """
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_leave)


def _leave() -> None:
    gc.collect()  # wrapped models that are no longer used
    if torch.distributed.is_initialized():  # with NCCL, Fabric may have been here before
        torch.distributed.destroy_process_group()


def run(
    data: Collection,
    settings: Settings,
    out: Path,
    *,
    cache: Path,
    fabric: Fabric,
    resume: bool = False,
    provenance: dict[str, Any] | None = None,
    on_progress: OnProgress | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Run:
    """Train on the clips of split `train`, decide by those of `validate`.

    Parameters
    ----------
    data
        Clips and labels.
    out
        The run folder.
    cache
        Folder for features, which other runs on the same data can use again.
    on_progress
        Called with the progress of computing features, then of training.
    on_note
        Called with what the user should know about the data, a line at a time, before training begins.

    See `train` for the rest.
    """
    training, validation, notes = split_for_training(data)
    notes = [*_summary(data, training, validation), *notes, *check_labels(data)]
    refuse_without_negatives(training)
    with fabric.rank_zero_first():
        stores = [
            feature_store(part, settings, cache, to_learn=part is training, on_progress=on_progress)
            for part in (training, validation)
        ]
    notes += [note for store in stores for note in _skipped(store)]
    learn = Bags(stores[0], training.labels, device=fabric.device)
    decide = Bags(stores[1], validation.labels, device=fabric.device)
    notes += (
        check_times(data, learn.durations | decide.durations)
        + check_examples(training, learn.filenames)
        + _too_long(learn, training, settings.training.patch)
    )
    if on_note is not None:
        for note in notes:
            on_note(note)
    about = {
        **(provenance or {}),
        "data": data_fingerprint(data),
        "training_clips": len(learn),
        "validation_clips": len(decide),
        "versions": {name: version(name) for name in ("earmark", "torch", "numpy")}
        | {"python": platform.python_version()},
    }
    result = train(
        learn, decide, settings, out, fabric=fabric, resume=resume, provenance=about, on_progress=on_progress
    )
    return Run(
        path=Path(out),
        epochs=result.epochs,
        best_epoch=result.best_epoch + 1,
        scores=result.scores,
        monitor=settings.training.monitor,
        is_finished=result.is_finished,
        notes=tuple(notes),
    )


def feature_store(
    part: Collection,
    settings: Settings,
    cache: Path,
    *,
    to_learn: bool,
    on_progress: OnProgress | None = None,
) -> FeatureStore:
    """Features of training clips, with variants of pitch and compression, or of validation clips."""
    name, augment = ("train", settings.augment) if to_learn else ("validate", Augmentation())
    variants = f"{augment.semitones} {augment.compression}" if augment.compression else f"{augment.semitones}"
    return build_store(
        cache / f"{name}-{_key(settings.features, variants)}",
        part.clips,
        settings.features,
        semitones=augment.semitones,
        compression=augment.compression,
        on_progress=on_progress,
    )


def data_fingerprint(data: Collection) -> str:
    """A short print of clips and labels: two data sets with the same one are the same.

    Names, splits and labels count; the sound itself does not.
    """
    text = json.dumps(
        [
            [(clip.filename, clip.split) for clip in data.clips],
            [tuple(row) for row in data.labels],
            data.classes,
            data.labels.complete,
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _key(config: FeatureConfig, variants: str) -> str:
    return hashlib.sha256(f"{config.fingerprint()} {variants}".encode()).hexdigest()[:12]


def split_for_training(data: Collection) -> tuple[Collection, Collection, list[str]]:
    """Clips to learn from and clips to decide by."""
    if "train" not in data.splits:
        raise DataError(f"no clips to train on: the splits are {', '.join(data.splits)}, none is called train")
    training = data.split("train")
    if "validate" in data.splits:
        return training, data.split("validate"), []
    names = [clip.filename for clip in training.clips]
    if len(names) < 2:
        raise DataError("one clip cannot both teach and decide: at least two training clips are needed")
    held = {name for name in names if _digest(name) % _HELD_OUT == 0}
    if len(held) in (0, len(names)):
        held = {names[-1]}
    note = (
        f"no clips are set aside to validate with: {len(held)} of {len(names)} training clips, chosen by name, are used"
    )
    kept, chosen = ([n for n in names if (n in held) is wanted] for wanted in (False, True))
    return training.select(kept), training.select(chosen), [note]


def _digest(name: str) -> int:
    # a file's name may be any bytes
    return int(hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest(), 16)


def _summary(data: Collection, training: Collection, validation: Collection) -> list[str]:
    """What was found and what becomes of it: the user sees at once if it is not what was meant."""
    tested = sum(clip.split == "test" for clip in data.clips)
    parts = [f"{len(training)} to train on", f"{len(validation)} to validate with"]
    parts += [f"{tested} to test with"] if tested else []
    n = len(data.classes)
    classes = f"{n} class" if n == 1 else f"{n} classes"
    origin = f"; labels from {data.origin}" if data.origin else ""
    notes = [f"{_clips(len(data))}, {classes}: {', '.join(parts)}{origin}"]
    if data.origin == FOLDER_NAMES:
        notes.append(f"labels are the names of folders: {classes} ({first_few(data.classes)})")
    return notes


def _skipped(store: FeatureStore) -> list[str]:
    if not store.skipped:
        return []
    what = f"{_clips(len(store.skipped))} could not be read and will not be used"
    return [f"{what}: {first_few(store.skipped.values())}; all are listed in {store.path / 'skipped.tsv'}"]


def _too_long(bags: Bags, training: Collection, patch: float) -> list[str]:
    """A line if clips are longer than a patch and do not say when: their patches would teach nothing."""
    long = {name: seconds for name, seconds in bags.durations.items() if seconds > SLACK * patch}
    silent = [n for n in long if any(row.present and not row.has_times for row in training.labels.of(n))]
    if not silent:
        return []
    longest = max(long[name] for name in silent)
    return [
        f"{_clips(len(silent))} with labels without times, longer than a patch of {patch:g} s: nobody knows where the "
        f"sound is, so such patches teach nothing about it. Try --set patch={longest:.0f}"
    ]


def _clips(n: int) -> str:
    return f"{n} clip" if n == 1 else f"{n} clips"
