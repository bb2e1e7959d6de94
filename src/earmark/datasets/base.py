"""The contract of data sets: clips, each with its audio files, and their labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.registry import Registry
from earmark.text import as_names, counted, first_few

FOLDER_NAMES = "the names of folders"
"""Origin of labels that were guessed from folders, which should be reported to the user."""


@dataclass(frozen=True)
class Source:
    """An audio file, or the part of it from `onset` to `offset` in seconds, and its gain in a clip."""

    path: Path
    gain: float = 1.0
    onset: float = 0.0
    offset: float | None = None  # None for its end

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return self.onset == 0 and self.offset is None

    @property
    def duration(self) -> float:
        """Seconds, read from the file's header."""
        total = audio.info(self.path).duration
        return (total if self.offset is None else min(self.offset, total)) - self.onset

    def read(self, rate: int) -> npt.NDArray[np.float32]:
        """The sound, without the gain: (samples,), mono."""
        return audio.read(self.path, rate=rate, onset=self.onset, offset=self.offset)


@dataclass(frozen=True)
class Clip:
    """One bag: its name in the labels, the audio files it is the sum of (nearly always one), and its split."""

    filename: str
    sources: tuple[Source, ...]
    split: str = "train"

    @property
    def is_file(self) -> bool:
        """Whether the clip is one unmodified file, rather than a mixture or an excerpt."""
        return len(self.sources) == 1 and self.sources[0].gain == 1 and self.sources[0].is_whole

    def read(
        self, rate: int, read_source: Callable[[Source], npt.NDArray[np.float32]] | None = None
    ) -> npt.NDArray[np.float32]:
        """Read the sum of the sources, as long as the longest: (samples,), mono.

        `read_source` reads the sound of a source, at this rate and without the gain, if not from its file.
        """
        parts = [source.read(rate) if read_source is None else read_source(source) for source in self.sources]
        if len(parts) == 1 and self.sources[0].gain == 1:
            return parts[0]
        total = np.zeros(max(len(part) for part in parts), np.float32)
        for part, source in zip(parts, self.sources, strict=True):
            total[: len(part)] += np.float32(source.gain) * part
        return total


@dataclass(frozen=True, repr=False)
class Collection:
    """Clips and their labels."""

    clips: tuple[Clip, ...]
    labels: LabelTable
    origin: str = ""  # where the labels come from: "labels.csv", or `FOLDER_NAMES`; empty for published data sets
    has_own_splits: bool = True  # False if earmark drew them
    notes: tuple[str, ...] = ()  # notes on labels that were cleaned while reading
    separator: str | None = None  # between labels in a cell, if the user stated it; "" if a cell has one label

    @classmethod
    def of(cls, clips: Sequence[Clip], rows: Iterable[Label], classes: Iterable[str]) -> Collection:
        """Clips of a published data set, and their labels."""
        splits = {clip.filename: clip.split for clip in clips}
        return cls(tuple(clips), LabelTable(rows, filenames=splits, classes=classes, splits=splits))

    def __post_init__(self) -> None:
        names = [clip.filename for clip in self.clips]
        if len(set(names)) != len(names):
            raise ArgumentError("two clips have the same name")
        unlabelled = set(names) - set(self.labels.filenames)
        if unlabelled:
            raise ArgumentError(f"{len(unlabelled)} clips have no labels, such as {min(unlabelled)!r}")

    def __len__(self) -> int:
        return len(self.clips)

    def __repr__(self) -> str:
        splits = Counter(clip.split for clip in self.clips)
        parts = ", ".join(f"{n} of split {split}" for split, n in splits.items())
        return f"<Collection: {counted(len(self), 'clip')} ({parts}), {counted(len(self.classes), 'class', 'classes')}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes, in the order of targets."""
        return self.labels.classes

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits."""
        return tuple(dict.fromkeys(clip.split for clip in self.clips))

    def split(self, name: str) -> Collection:
        """The clips of one split."""
        if name not in self.splits:
            raise unknown_name("split", name, self.splits)
        return self.select(clip.filename for clip in self.clips if clip.split == name)

    def select(self, filenames: Iterable[str]) -> Collection:
        """Some of the clips, in the order given."""
        by_name = {clip.filename: clip for clip in self.clips}
        names = as_names(filenames)
        if unknown := [name for name in names if name not in by_name]:
            raise ArgumentError(f"expected names of these {counted(len(self), 'clip')}, got {first_few(unknown)}")
        chosen = tuple(by_name[name] for name in names)
        return replace(self, clips=chosen, labels=self.labels.select(clip.filename for clip in chosen))


class Dataset(ABC):
    """A data set in its published layout."""

    name: ClassVar[str]
    classes: ClassVar[tuple[str, ...]] = ()  # empty where the labels decide
    splits: ClassVar[tuple[str, ...]] = ("train", "validate", "test")
    licence: ClassVar[str]
    citation: ClassVar[str]
    layout: ClassVar[str]  # the expected files, as a tree in text

    @abstractmethod
    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Clips and labels below `root`, of one split or of all."""

    def wanted(self, root: Path, split: str | None) -> tuple[str, ...]:
        """The splits to read, one or all, after checking that the folder and the split exist."""
        if not root.is_dir():
            raise DataError(f"{root}: no such folder")
        if split is not None and split not in self.splits:
            raise unknown_name("split", split, self.splits)
        return self.splits if split is None else (split,)


DATASETS: Registry[Dataset] = Registry("data set")
