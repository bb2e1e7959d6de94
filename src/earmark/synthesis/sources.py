"""Sound banks: where the sounds in a soundscape come from, and which of them a split may use.

A bank on disk is a folder of sounds, with any of these above them:

    foldN/LABEL/*.ogg     folds, as UrbanSound8K has them, with folders by class
    foldN/*.wav           UrbanSound8K as published: the class is the second number in the file's name
    train/LABEL/*.wav     the same for validate and test: the maker of the bank has split it
    LABEL/*.wav           no folds

Sources never cross splits. A bank with folds gives each split its published ones: 1 to 6 train, 7 and 8 validate, 9 and
10 test. Where only some folds are there, a split that got none takes the last fold of the split that has most. In a
bank without folds, or with fewer than three, the files of each class are dealt out three to train, one to validate, one
to test, and so on.

Where a source that a specification names is not there for its split, another of the same class from the same split
stands in, drawn by the soundscape's seed, one that is long enough if there is one.

The embedded bank, `ProceduralBank`, needs no files: it makes every sound anew, and never the same in two splits.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.errors import ArgumentError, DataError
from earmark.synthesis.bank import CLASSES, make_sound
from earmark.synthesis.specification import SPLITS, Event, Soundscape, draw
from earmark.timing import time_to_sample

__all__ = ["PUBLISHED_FOLDS", "Bank", "FolderBank", "ProceduralBank", "open_bank", "split_folds"]

Samples = npt.NDArray[np.float32]

PUBLISHED_FOLDS = {"train": (1, 2, 3, 4, 5, 6), "validate": (7, 8), "test": (9, 10)}
_DEAL = ("train", "validate", "train", "test", "train")
_URBANSOUND8K = re.compile(r"\d+-(\d)-\d+-\d+")
_CACHE_BYTES = 128 * 2**20
_LONG = 30.0  # seconds


class Bank(ABC):
    """Sounds by class and split."""

    name: str
    classes: tuple[str, ...]

    @abstractmethod
    def pick(self, label: str, split: str, rng: np.random.Generator, *, avoid: Iterable[str] = ()) -> str:
        """Any source of a class, by name; one of `avoid` only if there is no other."""

    @abstractmethod
    def seconds(self, source: str) -> float:
        """How long a source lasts; infinite if as long as one likes."""

    @abstractmethod
    def find(self, event: Event, split: str, rng: np.random.Generator) -> str:
        """The source an event names if its split may use it, else another of its class."""

    @abstractmethod
    def read(self, event: Event, rate: int) -> tuple[Samples, int]:
        """What an event hears of its source, and at what rate: the source's, at most `rate`.

        Fewer samples than asked for where the source ends first.
        """

    def resolved(self, soundscape: Soundscape) -> Soundscape:
        """The soundscape with sources that this bank has."""
        rngs = (draw(soundscape.seed, soundscape.name, "source", i) for i in range(len(soundscape.events)))
        found = (
            replace(event, source_file=self.find(event, soundscape.split, rng))
            for event, rng in zip(soundscape.events, rngs, strict=True)
        )
        return replace(soundscape, events=tuple(found))


class ProceduralBank(Bank):
    """The embedded bank: `earmark.synthesis.bank`. A source is called procedural/LABEL/SPLIT-NUMBER."""

    name = "procedural"
    classes = CLASSES

    def pick(self, label: str, split: str, rng: np.random.Generator, *, avoid: Iterable[str] = ()) -> str:
        """A new sound."""
        if label not in self.classes:
            raise DataError(
                f"the embedded bank has no class {label!r} (it has {', '.join(self.classes)}); give a sound bank"
            )
        return f"procedural/{label}/{split}-{int(rng.integers(2**32))}"

    def seconds(self, source: str) -> float:
        """Sounds are made to measure."""
        return float("inf")

    def find(self, event: Event, split: str, rng: np.random.Generator) -> str:
        """The sound itself if it is one of this bank's for this split, else a new one."""
        start = f"procedural/{event.label}/{split}-"
        named = event.source_file.startswith(start) and event.source_file[len(start) :].isdigit()
        return event.source_file if named else self.pick(event.label, split, rng)

    def read(self, event: Event, rate: int) -> tuple[Samples, int]:
        """The sound, made for as long as the event needs it."""
        _, label, number = event.source_file.split("/")
        split, _, seed = number.partition("-")
        duration = event.source_time + event.event_duration
        sound = make_sound(label, draw(int(seed), split, label), rate=rate, duration=duration)
        return sound[time_to_sample(event.source_time, rate) :], rate


class FolderBank(Bank):
    """Sounds in a folder; see the top of this file for what may be in it."""

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise ArgumentError(f"{root}: no such folder of sounds")
        self.root = root
        self.name = root.name
        self._files = {path.relative_to(root).as_posix(): _place(path.relative_to(root)) for path in audio.find(root)}
        if not self._files:
            raise DataError(f"{root}: no sounds in this folder")
        self.classes = tuple(sorted({label for label, _ in self._files.values()}))
        self._splits = _assigned(self._files)
        self._stems = {(label, self._splits[name], Path(name).stem): name for name, (label, _) in self._files.items()}
        self._lists: dict[tuple[str, str], list[str]] = {}
        for name, (label, _) in self._files.items():
            self._lists.setdefault((label, self._splits[name]), []).append(name)
        self._headers: dict[str, audio.AudioInfo] = {}
        self._cache = _Cache()

    def sources(self, label: str, split: str) -> list[str]:
        """Every source of a class that a split may use."""
        found = self._lists.get((label, split))
        if not found:
            raise DataError(
                f"{self.root}: no sound of class {label!r} for split {split!r}; "
                f"there are {len([n for n, (own, _) in self._files.items() if own == label])} of that class in all"
            )
        return found

    def pick(self, label: str, split: str, rng: np.random.Generator, *, avoid: Iterable[str] = ()) -> str:
        """Any source of the class that the split may use."""
        every = self.sources(label, split)
        avoided = set(avoid)
        fresh = [name for name in every if name not in avoided] or every
        return fresh[int(rng.integers(len(fresh)))]

    def seconds(self, source: str) -> float:
        """As its header says."""
        return self._header(source).duration

    def find(self, event: Event, split: str, rng: np.random.Generator) -> str:
        """By its path here, else by class and name without suffix: Scaper writes the paths of its maker's disk."""
        if self._splits.get(event.source_file) == split and self._files[event.source_file][0] == event.label:
            return event.source_file
        named = self._stems.get((event.label, split, Path(event.source_file).stem))
        if named is not None:
            return named
        every = self.sources(event.label, split)
        needed = event.source_time + event.event_duration
        for index in map(int, rng.permutation(len(every))):  # not all: looking at a header takes a millisecond
            if self.seconds(every[index]) >= needed:
                return every[index]
        return max(every, key=self.seconds)

    def read(self, event: Event, rate: int) -> tuple[Samples, int]:
        """The excerpt. What was decoded is kept for the next event, but for long sources: the latest 128 MiB of it."""
        path, header = self.root / event.source_file, self._header(event.source_file)
        at = min(header.rate, rate)
        end = min(event.source_time + event.event_duration, header.duration)
        if event.source_time >= end:
            return np.zeros(0, np.float32), at
        if header.duration > _LONG:
            return audio.read(path, rate=at, onset=event.source_time, offset=end), at
        known = self._cache.get((event.source_file, at))
        if known is None or len(known) < time_to_sample(end, at):
            # Up to here, no farther: most events use half of their source.
            known = self._cache.put((event.source_file, at), audio.read(path, rate=at, offset=end))
        return known[time_to_sample(event.source_time, at) : time_to_sample(end, at)], at

    def _header(self, source: str) -> audio.AudioInfo:
        if source not in self._headers:
            self._headers[source] = audio.info(self.root / source)
        return self._headers[source]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_cache": _Cache()}


class _Cache:
    """Decoded sound, the least recently used of which goes when it is too much."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], Samples] = OrderedDict()

    def get(self, key: tuple[str, int]) -> Samples | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def put(self, key: tuple[str, int], samples: Samples) -> Samples:
        self._kept.pop(key, None)
        self._kept[key] = samples
        while len(self._kept) > 1 and sum(own.nbytes for own in self._kept.values()) > _CACHE_BYTES:
            self._kept.popitem(last=False)
        return samples


def _place(path: Path) -> tuple[str, str | None]:
    """Class, and fold or split, of a file in a bank."""
    folders = path.parts[:-1]
    group = next((part for part in folders if part in SPLITS or re.fullmatch(r"fold\d+", part)), None)
    published = _URBANSOUND8K.fullmatch(path.stem)
    if folders and folders[-1] != group:
        return folders[-1], group
    if published and group:
        return CLASSES[int(published.group(1))], group
    raise DataError(f"{path}: a sound bank has its sounds in folders named after their classes")


def _assigned(files: dict[str, tuple[str, str | None]]) -> dict[str, str]:
    """Split of every file."""
    groups = {group for _, group in files.values()}
    if groups <= set(SPLITS):
        return {name: str(group) for name, (_, group) in files.items()}
    if None in groups or groups & set(SPLITS) or len(groups) < 3:
        return _dealt({name: label for name, (label, _) in files.items()})
    folds = {name: int(str(group).removeprefix("fold")) for name, (_, group) in files.items()}
    split_of = {fold: split for split, own in split_folds(folds.values()).items() for fold in own}
    return {name: split_of[fold] for name, fold in folds.items()}


def _dealt(labels: dict[str, str]) -> dict[str, str]:
    counts: Counter[str] = Counter()
    splits = {}
    for name, label in labels.items():
        splits[name] = _DEAL[counts[label] % len(_DEAL)]
        counts[label] += 1
    return splits


def split_folds(folds: Iterable[int]) -> dict[str, tuple[int, ...]]:
    """Which of the folds that are there belong to which split.

    >>> split_folds(range(1, 11))
    {'train': (1, 2, 3, 4, 5, 6), 'validate': (7, 8), 'test': (9, 10)}
    >>> split_folds([1, 2, 3, 10])
    {'train': (1, 2), 'validate': (3,), 'test': (10,)}
    """
    there = set(folds)
    given = {split: sorted(there & set(own)) for split, own in PUBLISHED_FOLDS.items()}
    given["train"] += sorted(there - {fold for own in PUBLISHED_FOLDS.values() for fold in own})
    for split in SPLITS:
        if not given[split]:
            most = max(SPLITS, key=lambda other: len(given[other]))
            given[split].append(given[most].pop())
    return {split: tuple(own) for split, own in given.items()}


def open_bank(where: Path | None) -> Bank:
    """The bank in a folder, or the embedded one."""
    return ProceduralBank() if where is None else FolderBank(where)
