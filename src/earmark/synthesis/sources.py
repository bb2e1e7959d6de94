"""Sound banks: the sources of soundscapes, and which of them a split may use.

A bank on disk is a folder in one of these layouts:

    foldN/LABEL/*.ogg     folds, as in UrbanSound8K, with folders by class
    foldN/*.wav           UrbanSound8K as published: the class is the second number in the file name
    train/LABEL/*.wav     likewise validate and test: the bank comes with splits
    LABEL/*.wav           no folds

Splits never share sources. In a bank with folds each split has its published ones: 1 to 6 train, 7 and 8 validate, 9
and 10 test. Where some folds are missing, a split without any takes the last fold of the split with most. In a bank
without folds, or with fewer than three, the files of each class are dealt out three to train, one to validate, one to
test, and so on.

A source that does not exist for its split is replaced by another of the same class and split, drawn by the soundscape's
seed, preferably one that is long enough.

The embedded bank, `ProceduralBank`, needs no files: it generates every sound, and different ones for each split.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np

from earmark import audio
from earmark.effects import Samples
from earmark.errors import ArgumentError, DataError
from earmark.synthesis.bank import CLASSES, make_sound
from earmark.synthesis.specification import SPLITS, Event, Soundscape, draw
from earmark.timing import time_to_sample

PUBLISHED_FOLDS = {"train": (1, 2, 3, 4, 5, 6), "validate": (7, 8), "test": (9, 10)}
_DEAL = ("train", "validate", "train", "test", "train")
_URBANSOUND8K = re.compile(r"\d+-(\d)-\d+-\d+")


class Bank(ABC):
    """Sounds by class and split."""

    name: str
    classes: tuple[str, ...]

    @abstractmethod
    def pick(self, label: str, split: str, rng: np.random.Generator, *, avoid: Iterable[str] = ()) -> str:
        """Draw a source of a class; one of `avoid` only if there is no other."""

    @abstractmethod
    def seconds(self, source: str) -> float:
        """Duration of a source; infinite for generated sounds."""

    @abstractmethod
    def find(self, event: Event, split: str, rng: np.random.Generator) -> str:
        """The source that an event names if its split may use it, else another of its class."""

    @abstractmethod
    def read(self, event: Event, rate: int) -> tuple[Samples, int]:
        """Samples of an event's source, fewer where it ends first, and their rate: the source's, at most `rate`."""

    def resolved(self, soundscape: Soundscape) -> Soundscape:
        """The soundscape with sources of this bank."""
        events = []
        for i, event in enumerate(soundscape.events):
            rng = draw(soundscape.seed, soundscape.name, "source", i)
            events.append(replace(event, source_file=self.find(event, soundscape.split, rng)))
        return replace(soundscape, events=tuple(events))


class ProceduralBank(Bank):
    """The embedded bank: `earmark.synthesis.bank`. Sources are named procedural/LABEL/SPLIT-NUMBER."""

    name = "procedural"
    classes = CLASSES

    def pick(self, label: str, split: str, rng: np.random.Generator, *, avoid: Iterable[str] = ()) -> str:
        if label not in self.classes:
            raise DataError(
                f"the embedded bank has no class {label!r} (it has {', '.join(self.classes)}); pass a sound bank"
            )
        return f"procedural/{label}/{split}-{int(rng.integers(2**32))}"

    def seconds(self, source: str) -> float:
        return float("inf")

    def find(self, event: Event, split: str, rng: np.random.Generator) -> str:
        start = f"procedural/{event.label}/{split}-"
        named = event.source_file.startswith(start) and event.source_file[len(start) :].isdigit()
        return event.source_file if named else self.pick(event.label, split, rng)

    def read(self, event: Event, rate: int) -> tuple[Samples, int]:
        _, label, number = event.source_file.split("/")
        split, _, seed = number.partition("-")
        duration = event.source_time + event.event_duration
        sound = make_sound(label, draw(int(seed), split, label), rate=rate, duration=duration)
        return sound[time_to_sample(event.source_time, rate) :], rate


class FolderBank(Bank):
    """Sounds in a folder; see the module for its layouts."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ArgumentError(f"{root}: no such folder")
        self.root = root
        self.name = root.name
        self._places = _assigned({path.relative_to(root).as_posix(): _place(path, root) for path in audio.find(root)})
        if not self._places:
            raise DataError(f"{root}: no audio files in this folder")
        self.classes = tuple(sorted({label for label, _ in self._places.values()}))
        self._stems = {(*place, Path(name).stem): name for name, place in self._places.items()}
        self._lists: dict[tuple[str, str], list[str]] = {}
        for name, place in self._places.items():
            self._lists.setdefault(place, []).append(name)
        self._headers: dict[str, audio.AudioInfo] = {}

    def sources(self, label: str, split: str) -> list[str]:
        """All sources of a class that a split may use."""
        sources = self._lists.get((label, split))
        if not sources:
            count = sum(other == label for other, _ in self._places.values())
            raise DataError(f"{self.root}: no sound of class {label!r} for split {split!r}, {count} in other splits")
        return sources

    def pick(self, label: str, split: str, rng: np.random.Generator, *, avoid: Iterable[str] = ()) -> str:
        every, avoided = self.sources(label, split), set(avoid)
        fresh = [name for name in every if name not in avoided] or every
        return fresh[int(rng.integers(len(fresh)))]

    def seconds(self, source: str) -> float:
        return self._header(source).duration

    def find(self, event: Event, split: str, rng: np.random.Generator) -> str:
        """By path, else by class and name without suffix, since Scaper writes absolute paths."""
        if self._places.get(event.source_file) == (event.label, split):
            return event.source_file
        named = self._stems.get((event.label, split, Path(event.source_file).stem))
        if named is not None:
            return named
        every = self.sources(event.label, split)
        needed = event.source_time + event.event_duration
        for index in map(int, rng.permutation(len(every))):  # not all: reading a header takes a millisecond
            if self.seconds(every[index]) >= needed:
                return every[index]
        return max(every, key=self.seconds)

    def read(self, event: Event, rate: int) -> tuple[Samples, int]:
        header = self._header(event.source_file)
        at = min(header.rate, rate)
        end = min(event.source_time + event.event_duration, header.duration)
        if event.source_time >= end:
            return np.zeros(0, np.float32), at
        sound = audio.read(self.root / event.source_file, rate=at, onset=event.source_time, offset=end)
        return sound[: time_to_sample(end, at) - time_to_sample(event.source_time, at)], at

    def _header(self, source: str) -> audio.AudioInfo:
        if source not in self._headers:
            self._headers[source] = audio.info(self.root / source)
        return self._headers[source]


def _place(path: Path, root: Path) -> tuple[str, str | None]:
    """Class, and fold or split, of a file in a bank."""
    folders = path.relative_to(root).parts[:-1]
    group = next((part for part in folders if part in SPLITS or re.fullmatch(r"fold\d+", part)), None)
    published = _URBANSOUND8K.fullmatch(path.stem)
    if folders and folders[-1] != group:
        return folders[-1], group
    if published and group:
        return CLASSES[int(published.group(1))], group
    raise DataError(f"{path.relative_to(root)}: expected sounds in folders named after their classes")


def _assigned(files: dict[str, tuple[str, str | None]]) -> dict[str, tuple[str, str]]:
    """Class and split of each file."""
    groups = {group for _, group in files.values()}
    if groups <= set(SPLITS):
        return {name: (label, str(group)) for name, (label, group) in files.items()}
    if None in groups or groups & set(SPLITS) or len(groups) < 3:
        deal = {label: cycle(_DEAL) for label, _ in files.values()}
        return {name: (label, next(deal[label])) for name, (label, _) in files.items()}
    folds = {group: int(str(group).removeprefix("fold")) for group in groups}
    split_of = {fold: split for split, members in split_folds(folds.values()).items() for fold in members}
    return {name: (label, split_of[folds[group]]) for name, (label, group) in files.items()}


def split_folds(folds: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Folds of each split.

    >>> split_folds(range(1, 11))
    {'train': (1, 2, 3, 4, 5, 6), 'validate': (7, 8), 'test': (9, 10)}
    >>> split_folds([1, 2, 3, 10])
    {'train': (1, 2), 'validate': (3,), 'test': (10,)}
    """
    available = set(folds)
    members = {split: sorted(available & set(published)) for split, published in PUBLISHED_FOLDS.items()}
    members["train"] += sorted(available.difference(*PUBLISHED_FOLDS.values()))
    for split in SPLITS:
        if not members[split]:
            most = max(SPLITS, key=lambda other: len(members[other]))
            members[split].append(members[most].pop())
    return {split: tuple(numbers) for split, numbers in members.items()}


def open_bank(where: Path | None) -> Bank:
    """Open the bank in a folder, or the embedded one."""
    return ProceduralBank() if where is None else FolderBank(where)
