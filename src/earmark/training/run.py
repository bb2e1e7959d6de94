"""A run from data to model: splits, features, bags, training, and notes about the data."""

from __future__ import annotations

import atexit
import gc
import hashlib
import json
import logging
import math
import os
import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from earmark.annotations import LabelTable
from earmark.bags import SLACK, STORE_VERSION, Bags, FeatureStore, build_store
from earmark.checkpoint import load_detector, model_file
from earmark.datasets import Collection
from earmark.datasets.base import FOLDER_NAMES
from earmark.datasets.checks import (
    check_examples,
    check_folds,
    check_labels,
    check_times,
    check_validation,
    refuse_names,
    refuse_without_negatives,
)
from earmark.datasets.cleaning import refuse_joined
from earmark.datasets.mixing import mixed_clips, with_mixtures
from earmark.datasets.splitting import hold_out_clips, stratified_folds
from earmark.devices import gpu_memory
from earmark.encoders import EncoderFeatures
from earmark.encoders.features import trains_encoder
from earmark.errors import ArgumentError, DataError
from earmark.files import locked, make_folder, remove_drafts
from earmark.networks import NETWORKS, Head
from earmark.ownership import owned
from earmark.progress import OnNote, OnProgress, ignore_note, ignore_progress, renamed
from earmark.settings import Augmentation, Settings
from earmark.text import counted, first_few
from earmark.training.loop import Run, train
from earmark.training.memory import FILES, check_folder, read_log, write_config
from earmark.training.teaching import frame_targets, score_frames
from earmark.training.validation import Tally

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_SMALL_BATCH = 1_000_000  # elements


def make_fabric(settings: Settings, *, devices: int | None = None, nodes: int = 1) -> Fabric:
    """The devices and the precision of a run; processes that torchrun or SLURM started join each other."""
    from lightning_fabric import Fabric

    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # no banner
    on_gpu = torch.cuda.is_available()
    count = devices or int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    precision = settings.training.precision
    half = precision == "bf16" or (precision == "auto" and on_gpu and torch.cuda.is_bf16_supported())
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
    """Start or join the processes, and destroy their group when this one exits.

    Threads of the group that outlived the interpreter would kill the process with a signal, which torchrun reports as
    a failure. They end with the group, when neither torch nor a wrapped model refers to it any more.
    """
    fabric.launch()
    if fabric.world_size > 1:
        atexit.register(_destroy_group)


def _destroy_group() -> None:
    gc.collect()  # wrapped models that are no longer used
    if torch.distributed.is_initialized():  # with NCCL, Fabric may have destroyed it
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
    on_progress: OnProgress = ignore_progress,
    on_note: OnNote = ignore_note,
) -> Run:
    """Train on the clips of split `train`, and choose the best epoch on those of `validate`.

    Without such a split and with `folds` in the settings, the best epoch is chosen by cross-validation of the training
    clips, and the model is then trained on all of them.

    `cache` is a folder for features, shared by runs on the same data. `on_note` is called with each note about the data
    before training starts. See `earmark.training.train` for the rest.
    """
    if settings.training.teacher is not None:
        settings = settings.changed({"rounds": max(1, settings.training.rounds)})
    with _writing(out, fabric, resume):
        folds = fold_count(data, settings)
        hold_out = settings.training.monitor != "last"
        training, validation, split_notes = split_for_training(data, hold_out=hold_out, folds=folds)
        notes = [*_summary(data, training, validation), *data.notes, *split_notes, *check_labels(data)]
        refuse_names(data)
        refuse_joined(data)
        refuse_without_negatives(training)
        mixed = with_mixtures(training, settings.augment.mixtures)
        with fabric.rank_zero_first():
            build = partial(feature_store, settings=settings, cache=cache, device=fabric.device)
            stores = [build(mixed, to_learn=True, on_progress=_counting(len(mixed) - len(training), on_progress))]
            if validation is not training:
                stores.append(build(validation, to_learn=False, on_progress=on_progress))
        for store in stores:
            notes += [*_repaired(store), *_skipped(store, data)]
        bags = Bags(stores[0], mixed.labels, device=fabric.device)
        validation_bags = Bags(stores[-1], validation.labels, device=fabric.device)
        clips = set(training.labels.filenames)
        durations = {name: seconds for name, seconds in bags.durations.items() if name in clips}  # without mixtures
        notes += check_times(data, durations | validation_bags.durations)
        notes += check_examples(training, durations) + check_validation(training, validation)
        if folds:
            notes += check_folds(training)
        notes += _too_long(durations, training, settings.training.patch)
        for note in notes:
            on_note(note)
        if not settings.training.steps:
            settings = settings.changed({"steps": math.ceil(len(bags) / settings.training.batch_size)})
        about = {
            **(provenance or {}),
            "data": data_fingerprint(data),
            "versions": _versions(),
            "training_clips": len(durations),
            "validation_clips": len(validation_bags),
        }
        if folds:
            about["folds"] = folds
        mixtures = mixed_clips(training, settings.augment.mixtures)
        training_set = _TrainingSet(stores[0], bags, mixed.labels, mixtures, cache, training)
        with torch_threads(training_threads(settings)), gpu_memory(smaller_batches(settings)):
            if folds:
                result = _cross_validate(training_set, folds, settings, out, fabric, about, on_progress)
            else:
                result = _train_rounds(training_set, validation_bags, settings, out, fabric, about, on_progress)
        return replace(result, notes=tuple(notes), warnings=tuple(useless_warnings(result, validation)))


def smaller_batches(settings: Settings) -> str:
    """Advice if a GPU's memory is not enough."""
    options = settings.training
    size = f"batches of {counted(options.batch_size, 'excerpt')} of {options.patch:g} s"
    if options.batch_size == 1:
        return f"it was to train on {size}; try shorter ones (--set patch=...)"
    return f"it was to train on {size}; try --set batch_size={options.batch_size // 2}, or another device"


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("earmark", "torch", "numpy")}
    return {**packages, "python": platform.python_version()}


@dataclass(frozen=True)
class _TrainingSet:
    """Features and labels of the clips that a network is trained on."""

    store: FeatureStore
    bags: Bags
    labels: LabelTable
    mixtures: Mapping[str, tuple[str, str]]
    cache: Path
    clips: Collection  # without mixtures

    def without(self, held: Sequence[str], device: torch.device) -> _TrainingSet:
        """The same without some clips, and without mixtures of them."""
        left_out = set(held)
        names = [name for name in self.bags.filenames if left_out.isdisjoint((name, *self.mixtures.get(name, ())))]
        kept = set(names)
        labels = self.labels.select(names)
        bags = Bags(self.store, labels, device=device)
        mixtures = {name: pair for name, pair in self.mixtures.items() if name in kept}
        clips = self.clips.select(clip.filename for clip in self.clips.clips if clip.filename in kept)
        return _TrainingSet(self.store, bags, labels, mixtures, self.cache, clips)

    def use_teacher(self, model: Path, settings: Settings, fabric: Fabric) -> None:
        """Replace frame targets that the labels leave unknown by the scores of a model."""
        teacher = load_detector(model_file(model)).to(fabric.device)
        bags = self.bags
        if teacher.classes != bags.classes:
            expected, got = first_few(bags.classes), first_few(teacher.classes)
            raise ArgumentError(f"{model}: expected a model of {expected}, got one of {got}")
        if teacher.features != bags.config:
            other = replace(settings, features=teacher.features, augment=Augmentation())
            store = feature_store(self.clips, other, self.cache, to_learn=True, device=fabric.device)
            bags = Bags(store, self.clips.labels, device=fabric.device)
        targets = frame_targets(
            self.bags,
            self.labels,
            score_frames(teacher, bags, settings.training.patch, fabric, leave_out=self.mixtures),
            hop=teacher.features.hop * teacher.reduction,
            use_times=settings.training.supervision == "mixed",
            mixtures=self.mixtures,
        )
        self.bags.teach(targets)


def fold_count(data: Collection, settings: Settings) -> int:
    """How many folds to cross-validate with, at most; 0 with weights or scores of a model that may know the clips."""
    options = settings.training
    if "validate" in data.splits or options.start is not None or options.teacher is not None:
        return 0
    count = min(options.folds, sum(clip.split == "train" for clip in data.clips))
    return count if count > 1 else 0


def _cross_validate(
    training_set: _TrainingSet,
    count: int,
    settings: Settings,
    out: Path,
    fabric: Fabric,
    provenance: Mapping[str, Any],
    on_progress: OnProgress,
) -> Run:
    """Train without each fold, in `fold-1`, `fold-2` and so on, then on all clips, with the validation of all folds."""
    folders = []
    if fabric.is_global_zero:
        write_config(out, settings)
    usable = set(training_set.bags.filenames)
    clips = training_set.clips.select(clip.filename for clip in training_set.clips.clips if clip.filename in usable)
    folds = stratified_folds(clips, count)
    for number, held in enumerate(folds, 1):
        part = training_set.without(held, fabric.device)
        # as many passes over the clips as in training on all of them
        steps = math.ceil(settings.training.steps * len(part.bags) / len(training_set.bags))
        validation = Bags(training_set.store, clips.select(held).labels, device=fabric.device)
        about = {**provenance, "fold": number, "held_out": list(held)}
        about |= {"training_clips": len(part.clips), "validation_clips": len(held)}
        on_fold_progress = renamed(on_progress, f"fold {number} of {len(folds)}, {{}}")
        folders.append(out / f"fold-{number}")
        changed = settings.changed({"steps": steps})
        result = _train_rounds(part, validation, changed, folders[-1], fabric, about, on_fold_progress)
        if not result.is_finished:
            return result
    result = _train_rounds(training_set, folders, settings, out, fabric, provenance, on_progress)
    return replace(result, folds=len(folds))


def _tallies(folders: Sequence[Path]) -> list[Tally]:
    """The tallies of all runs of a cross-validation together, for the epochs that all of them have."""
    logs = []
    for path in (folder / "log.jsonl" for folder in folders):
        tallies = [line.tally for line in read_log(path) if line.tally is not None]
        if not tallies:
            raise DataError(f"{path}: no epoch with validation counts; train in another folder")
        logs.append(tallies)
    return [Tally.total(tallies) for tallies in zip(*logs, strict=False)]


def _train_rounds(
    training_set: _TrainingSet,
    validation: Bags | Sequence[Path],
    settings: Settings,
    out: Path,
    fabric: Fabric,
    provenance: Mapping[str, Any],
    on_progress: OnProgress,
) -> Run:
    """Train once, unless there is a teacher; then train `rounds` new networks, each on the scores of the previous one.

    The last run is in `out` itself, those before it in run folders `round-0`, `round-1` and so on. `validation` may be
    the folders of cross-validation, which have the same rounds.
    """
    rounds = settings.training.rounds
    teacher = None if settings.training.teacher is None else Path(settings.training.teacher)
    if rounds and fabric.is_global_zero:
        write_config(out, settings)
    for number in range(0 if teacher is None else 1, rounds + 1):
        changed = settings.changed({"rounds": number})
        if teacher is not None:
            training_set.use_teacher(teacher, changed, fabric)
        name = "" if number == rounds else f"round-{number}"
        folder = out / name
        result = train(
            training_set.bags,
            validation if isinstance(validation, Bags) else _tallies([fold / name for fold in validation]),
            changed,
            folder,
            fabric=fabric,
            resume=True,  # `run` has checked whether there is a run to resume
            provenance=dict(provenance),
            on_progress=renamed(on_progress, f"training, round {number + 1} of {rounds + 1}" if rounds else "training"),
        )
        fabric.barrier()  # the first process writes the model
        if not result.is_finished:
            break
        teacher = folder
    return result


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let PyTorch use this many threads on the CPU."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def training_threads(settings: Settings) -> int:
    """Threads to train with on a CPU: one for a head with small batches, where several mostly wait for each other.

    An encoder that is trained as well has enough work for several, whatever the batch.
    """
    features, options = settings.features, settings.training
    elements = options.batch_size * features.n_bands * features.frames(round(options.patch * features.rate))
    is_head = issubclass(NETWORKS[settings.network["name"]].cls, Head) and not trains_encoder(features)
    return 1 if is_head and elements < _SMALL_BATCH else torch.get_num_threads()


@contextmanager
def _writing(out: Path, fabric: Fabric, resume: bool) -> Iterator[None]:
    """Lock the run folder, and refuse to replace files that do not belong to a run."""
    if not fabric.is_global_zero:
        yield
        return
    make_folder(out)
    with locked(_outermost(out)):
        is_resumed = check_folder(out, resume=resume)
        folders = [out, *out.glob("round-*"), *out.glob("fold-*"), *out.glob("fold-*/round-*")]
        names = (*FILES, "last.ckpt", "figures/learning.png", "figures/learning.svg")
        remove_drafts(folder / name for folder in folders for name in names)  # of a killed process
        with owned(out, files=() if is_resumed else [out / name for name in FILES]):
            yield


def _outermost(out: Path) -> Path:
    """The run folder that a round or a fold is part of: a process that trains there locks all of it."""
    parent = out.absolute().parent
    is_part = re.fullmatch(r"(round|fold)-\d+", out.name) and (parent / "config.toml").is_file()
    return _outermost(parent) if is_part else out


def feature_store(
    part: Collection,
    settings: Settings,
    cache: Path,
    *,
    to_learn: bool,
    device: torch.device | None = None,
    on_progress: OnProgress = ignore_progress,
) -> FeatureStore:
    """Features of training clips, with variants of pitch and compression, or of validation clips.

    Embeddings are computed on `device`, log-mel features on the CPU, where reading sound takes longer than they do.
    """
    name, augment = ("train", settings.augment) if to_learn else ("validate", Augmentation())
    variants = f"{augment.semitones} {augment.compression}" if augment.compression else f"{augment.semitones}"
    if augment.semitones and augment.pitch_shift == "sound":
        variants += " of sound"
    text = f"{STORE_VERSION} {settings.features.fingerprint()} {variants}"  # stores of other versions are left alone
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    return build_store(
        cache / f"{name}-{key}",
        part.clips,
        settings.features,
        semitones=augment.semitones,
        pitch_shift=augment.pitch_shift,
        compression=augment.compression,
        device=device if isinstance(settings.features, EncoderFeatures) else None,
        on_progress=on_progress,
    )


def _counting(mixtures: int, on_progress: OnProgress) -> OnProgress:
    """The callback, with the number of mixtures among the clips, if there are any."""
    if not mixtures:
        return on_progress
    return lambda progress: on_progress(replace(progress, detail=f"{counted(mixtures, 'mixture')} among them"))


def data_fingerprint(data: Collection) -> str:
    """Identifies names, splits and labels of clips, but not their sound: 16 hexadecimal digits."""
    clips = [(clip.filename, clip.split) for clip in data.clips]
    text = json.dumps([clips, [tuple(row) for row in data.labels], data.classes, data.labels.complete])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def split_for_training(
    data: Collection, *, hold_out: bool = True, folds: int = 0
) -> tuple[Collection, Collection, list[str]]:
    """Training and validation clips, and notes; without a split `validate`, some training clips are held out.

    With `hold_out=False`, for runs that decide nothing by validation, or with folds of cross-validation, all clips
    are trained on and validated with.
    """
    if "train" not in data.splits:
        raise DataError(f"no clips to train on: the splits are {', '.join(data.splits)}, none is called train")
    training = data.split("train")
    if "validate" in data.splits:
        return training, data.split("validate"), []
    if folds:
        what = f"{folds}-fold cross-validation, then training on all {len(training)} clips"
        return training, training, [f"no clips are set aside to validate with: {what}"]
    if not hold_out:
        note = "no clips are set aside to validate with: validation scores are those of the training clips"
        return training, training, [note]
    kept, held = hold_out_clips(training)
    note = f"no clips are set aside to validate with: {len(held)} of {len(training)} training clips are used"
    return kept, held, [note]


def _summary(data: Collection, training: Collection, validation: Collection) -> list[str]:
    """The number of clips and classes, and where labels come from."""
    tested = sum(clip.split == "test" for clip in data.clips)
    parts = [f"{len(training)} to train on"]
    parts += [] if validation is training else [f"{len(validation)} to validate with"]
    parts += [f"{tested} to test with"] if tested else []
    others = Counter(clip.split for clip in data.clips if clip.split not in ("train", "validate", "test"))
    parts += [f"{n} of split {name}" for name, n in others.items()]  # such as the verdicts that are held out
    classes = counted(len(data.classes), "class", "classes")
    origin = f"; labels from {data.origin}" if data.origin else ""
    notes = [f"{counted(len(data), 'clip')}, {classes}: {', '.join(parts)}{origin}"]
    if data.origin == FOLDER_NAMES:
        notes.append(f"labels are the names of folders: {classes} ({first_few(data.classes)})")
    return notes


def useless_warnings(result: Run, validation: Collection) -> list[str]:
    """A warning if the best epoch detects nothing in the validation clips, or if there is nothing in them to detect."""
    if not result.scores:
        return []
    n = len(validation)
    n_positive = int((validation.labels.bag_targets() == 1).any(axis=1).sum())
    if not n_positive:
        why = f"none of the {counted(n, 'validation clip')} has any of the sounds"
        why += "" if result.monitor == "last" else ", so no epoch could be chosen"
        return [f"the model could not be validated: {why}; add clips with the sounds to the split validate"]
    if result.scores["f1"] > 0:
        return []
    what = f"F1 is 0 on the validation clips, {n_positive} of {n} with sounds to detect"
    remedy = "check the labels, label more recordings, or train for more epochs (--set epochs=...)"
    return [f"the model is useless: {what}; {remedy}"]


def _repaired(store: FeatureStore) -> list[str]:
    if not store.repaired:
        return []
    what = f"features of {counted(len(store.repaired), 'clip')} in {store.path} were damaged and have been recomputed"
    return [f"{what}: {first_few(store.repaired)}"]


def _skipped(store: FeatureStore, data: Collection) -> list[str]:
    """A note on clips that could not be read; mixtures of them are not counted."""
    given = set(data.labels.filenames)
    reasons = [reason for name, reason in store.skipped.items() if name in given]
    if not reasons:
        return []
    what = f"{counted(len(reasons), 'clip')} could not be read and will not be used"
    return [f"{what}: {first_few(reasons)}; all are listed in {store.path / 'skipped.tsv'}"]


def _too_long(durations: Mapping[str, float], training: Collection, patch: float) -> list[str]:
    """A note if clips with labels without times are longer than a patch."""
    long = {name: seconds for name, seconds in durations.items() if seconds > SLACK * patch}
    untimed = [n for n in long if any(row.present and not row.has_times for row in training.labels.of(n))]
    if not untimed:
        return []
    longest = max(long[name] for name in untimed)
    return [
        f"{counted(len(untimed), 'clip')} with labels without times, longer than an excerpt of {patch:g} s: such "
        f"labels say nothing about an excerpt and are ignored there. Try --set patch={longest:.0f}"
    ]
