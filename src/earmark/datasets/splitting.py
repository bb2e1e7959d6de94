"""Splits and folds: stratified by class, grouped by recording, and the same on every machine.

    draw_splits(labels, recordings)     train, validate and test, where a data set has no splits
    hold_out_clips(data)                clips to train on, and clips to validate with
    stratified_folds(data, 5)           folds for cross-validation

Pieces of one recording stay together: a model that was trained on one piece is not evaluated on another. Pieces are
recognised by their names (`piece_of`), by their folder, and by identical content. A grouping that leaves too few groups
to put every class on both sides is replaced by a finer one.

Groups are assigned class by class, the rarest class first, each to the split that lacks it most: iterative
stratification (Sechidis, Tsoumakas and Vlahavas 2011). Hashes of names decide what nothing else decides, so neither the
order of files nor the machine matters.
"""

import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.audio.clock import TIME_STAMP
from earmark.datasets.base import Collection
from earmark.errors import ArgumentError, DataError
from earmark.formats.text import without_sound_suffix

FEW = 40
"""With fewer clips, all are for training: the other splits would be too small."""

_SHARES = {"train": 0.8, "validate": 0.1, "test": 0.1}
_LARGEST = 0.2  # largest share of the clips in one group, where names only suggest a grouping
_FOLDERS = 10  # with at least this many, folders are assumed to be recordings or places
_WORDS = "part|piece|segment|seg|chunk|clip|slice|section|excerpt"
_SPAN = re.compile(r"[ _-]+\d+(\.\d+)?s?[ _-]+\d+(\.\d+)?s?\Z|[ _.-]*\((\d+)\)\Z")  # x_30.000_40.000, x (2)
_WORD = re.compile(rf"(^|[ _.-]+)({_WORDS})[ _.-]*\d+\Z", re.IGNORECASE)  # x_part2
_NUMBER = re.compile(r"(^|[ _.-]+)\d+\Z")  # x_0002
_BLOCK = 1 << 14  # bytes, compared at the start, in the middle and at the end of files of the same size

Counts = npt.NDArray[np.int64]
Key = Hashable


@dataclass(frozen=True)
class _Groups:
    """Groups of clips: their names, and the number of clips per class, (groups, classes + 1).

    The last column counts clips without any class, so that they are spread as well.
    """

    names: list[list[str]]
    counts: Counts

    @property
    def sizes(self) -> Counts:
        return np.array([len(names) for names in self.names])


def draw_splits(labels: LabelTable, recordings: Mapping[str, tuple[str, Path]]) -> dict[str, str]:
    """Draw splits: about 80% train, 10% validate and 10% test; all for training if there are fewer than `FEW`.

    A class in two groups is in train and validate, one in three or more is in test too, wherever the other classes
    allow. `recordings` are, by name in the labels, the path below the data folder, which decides, and the file.
    """
    if len(recordings) < FEW:
        return dict.fromkeys(recordings, "train")
    keys = {name: key for name, (key, _) in recordings.items()}
    groups = _grouped(labels, keys, {name: path for name, (_, path) in recordings.items()})
    place = _assigned(groups, list(_SHARES.values()))
    splits = list(_SHARES)
    drawn = {name: splits[p] for p, names in zip(place, groups.names, strict=True) for name in names}
    return {name: drawn[name] for name in recordings}


def hold_out_clips(data: Collection) -> tuple[Collection, Collection]:
    """Clips to train on and a tenth of them, or a fifth of few, to validate with; classes are in both if possible."""
    if len(data) < 2:
        raise DataError("expected at least two training clips, one of them to validate with, got one")
    share = 0.1 if len(data) >= 2 * FEW else 0.2
    groups = _groups_of(data)
    place = _assigned(groups, [1 - share, share])
    if len(set(place)) < 2:
        groups = _grouped_by(data.labels, {clip.filename: clip.filename for clip in data.clips})
        place = _assigned(groups, [1 - share, share])
    if len(set(place)) < 2:  # every class is in one clip
        place[-1] = 1
    held = {name for p, names in zip(place, groups.names, strict=True) for name in names if p == 1}
    names = [clip.filename for clip in data.clips]
    return data.select(n for n in names if n not in held), data.select(n for n in names if n in held)


def stratified_folds(data: Collection, count: int = 5) -> list[tuple[str, ...]]:
    """Names of the clips of each fold; fewer folds where there are fewer recordings than `count`.

    Every clip is in one fold, pieces of a recording are in the same, and the clips of a class are spread as evenly as
    that allows.
    """
    if count < 2:
        raise ArgumentError(f"expected at least 2 folds, got {count}")
    if len(data) < 2:
        raise DataError(f"expected at least two clips to make folds of, got {len(data)}")
    groups = _groups_of(data)
    if len(groups.names) < 2:
        groups = _grouped_by(data.labels, {clip.filename: clip.filename for clip in data.clips})
    count = min(count, len(groups.names))
    place = _assigned(groups, [1 / count] * count)
    fold_of = {name: p for p, names in zip(place, groups.names, strict=True) for name in names}
    names = [clip.filename for clip in data.clips]
    return [tuple(name for name in names if fold_of[name] == fold) for fold in range(count)]


def piece_of(name: str, *, numbered: bool = True) -> str:
    """The recording that a file is a piece of, by its name; the name without suffix if it is not named like a piece.

    Pieces have times (x_30.0_40.0), a number in brackets, or a word and a number (x_part2); with `numbered`, a number
    alone is enough (x_0002). Date and time of a recorder are not mistaken for numbers of pieces.

    >>> [piece_of(name) for name in ("a/x_30.000_40.000.wav", "a/x_0002.wav", "a/0002.wav", "100032-3-0-0.wav")]
    ['a/x', 'a/x', 'a', '100032']
    >>> piece_of("20260514_221500.WAV"), piece_of("20260514_221500_003.WAV"), piece_of("x_0002.wav", numbered=False)
    ('20260514_221500', '20260514_221500', 'x_0002')
    """
    folder, stem = posixpath.split(without_sound_suffix(name))
    stamps = list(TIME_STAMP.finditer(stem))
    kept = stamps[-1].end() if stamps else 0
    patterns = (_SPAN, _WORD, _NUMBER) if numbered else (_SPAN, _WORD)
    while True:
        starts = [match.start() for pattern in patterns if (match := pattern.search(stem, kept))]
        if not starts or (starts[0] == 0 and not folder):  # a name of only a number is that of a recording
            break
        stem = stem[: starts[0]]
    return posixpath.join(folder, stem).rstrip("/")


def _groups_of(data: Collection) -> _Groups:
    keys = {clip.filename: clip.filename for clip in data.clips}
    return _grouped(data.labels, keys, {clip.filename: clip.sources[0].path for clip in data.clips if clip.is_file})


def _grouped(labels: LabelTable, keys: Mapping[str, str], files: Mapping[str, Path]) -> _Groups:
    """The coarsest grouping of clips that can still be divided; `keys` are paths that mean the same everywhere."""
    same = _same_content(files)
    for key_of in (_folder, piece_of, _timed_piece, str):
        groups = _grouped_by(labels, _merged({name: key_of(key) for name, key in keys.items()}, same), keys)
        if key_of is str or _can_be_divided(groups, key_of, keys):
            break
    return groups


def _folder(key: str) -> str:
    """The folder of a file; outside folders, the recording that it is a piece of."""
    return posixpath.dirname(key) or piece_of(key)


def _timed_piece(key: str) -> str:
    return piece_of(key, numbered=False)


def _can_be_divided(groups: _Groups, key_of: Callable[[str], str], keys: Mapping[str, str]) -> bool:
    """Whether a grouping is plausible: enough groups, none of them too large, most classes in several."""
    if key_of is _timed_piece:
        return len(groups.names) > 2
    if key_of is _folder and len({posixpath.dirname(key) for key in keys.values()}) < _FOLDERS:
        return False
    n_clips = groups.counts.sum(0)  # of each class
    n_groups = (groups.counts > 0).sum(0)
    n_lost = ((n_clips > 1) & (n_groups < 2)).sum()  # classes that could no longer be divided
    is_small = groups.sizes.max() <= max(_LARGEST * groups.sizes.sum(), 2)
    return bool(is_small and 2 * n_lost <= (n_clips > 0).sum())


def _grouped_by(labels: LabelTable, group_of: Mapping[str, Key], keys: Mapping[str, str] | None = None) -> _Groups:
    """Groups in an order that depends only on their paths: by size, largest first, then by hash."""
    keys = keys or {name: name for name in group_of}
    members: dict[Key, list[str]] = {}
    for name, group in group_of.items():
        members.setdefault(group, []).append(name)
    for names in members.values():
        names.sort(key=lambda name: keys[name])
    ordered = sorted(members.values(), key=lambda names: (-len(names), _digest(keys[names[0]])))
    positive = labels.bag_targets([name for names in ordered for name in names]) == 1
    marks = np.hstack([positive, ~positive.any(axis=1, keepdims=True)]).astype(np.int64)
    starts = np.cumsum([0, *(len(names) for names in ordered)])[:-1]
    return _Groups(ordered, np.add.reduceat(marks, starts))


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def _assigned(groups: _Groups, shares: Sequence[float]) -> list[int]:
    """The split of each group, by index into the shares; earlier splits come first where there are few."""
    wanted = np.stack([_wanted(column, shares) for column in groups.counts.T], axis=1)  # (splits, classes)
    sizes = groups.sizes
    room = np.array(shares) * sizes.sum()  # (splits,)
    place = np.full(len(sizes), -1)
    while (place < 0).any():
        left = (groups.counts[place < 0] > 0).sum(0)
        rarest = int(np.where(left > 0, left, left.max() + 1).argmin())
        for g in np.flatnonzero((place < 0) & (groups.counts[:, rarest] > 0)):
            split = max(range(len(shares)), key=lambda s: (wanted[s, rarest], room[s], -s))
            place[g] = split
            wanted[split] -= groups.counts[g]
            room[split] -= sizes[g]
    _repair(groups, place, len(shares))
    return [int(p) for p in place]


def _wanted(column: Counts, shares: Sequence[float]) -> npt.NDArray[np.float64]:
    """How many clips of a class each split should have; at least one, in order, as long as there are groups of it."""
    total, n_groups = int(column.sum()), int((column > 0).sum())
    wanted = np.array(shares) * total
    if min(shares) < max(shares):  # splits rather than folds
        for split in range(1, len(shares)):
            wanted[split] = max(1.0, round(wanted[split])) if n_groups >= 2 * split else 0.0
        wanted[0] = total - wanted[1:].sum()
    return wanted


def _repair(groups: _Groups, place: npt.NDArray[np.int64], n_splits: int) -> None:
    """Move groups into splits that lack a class that they could have, if no split loses a class by it."""
    n_groups = (groups.counts > 0).sum(0)
    for label in np.argsort(n_groups, kind="stable"):
        for split in range(n_splits):
            if n_groups[label] < max(1, 2 * split) or (groups.counts[place == split, label] > 0).any():
                continue
            candidates = [g for g in np.flatnonzero(groups.counts[:, label] > 0) if _is_spare(groups, place, g)]
            if candidates:
                place[min(candidates, key=lambda g: (groups.sizes[g], g))] = split


def _is_spare(groups: _Groups, place: npt.NDArray[np.int64], g: int) -> bool:
    """Whether the split of a group keeps all of its classes without it."""
    others = (place == place[g]) & (np.arange(len(place)) != g)
    needed = groups.counts[g] > 0
    return bool((groups.counts[others].sum(0)[needed] > 0).all())


def _merged(group_of: Mapping[str, str], same: Iterable[Sequence[str]]) -> dict[str, Key]:
    """Group of each name, after groups with equal files have been merged."""
    parent: dict[str, str] = {}

    def root(group: str) -> str:
        while group in parent:
            group = parent[group]
        return group

    for names in same:
        first, *others = sorted({root(group_of[name]) for name in names})
        parent.update(dict.fromkeys(others, first))
    return {name: root(group) for name, group in group_of.items()}


def _same_content(files: Mapping[str, Path]) -> list[list[str]]:
    """Names of equal files: of the same size, and with the same bytes at the start, in the middle and at the end.

    Where most files are equal, as silent placeholders are, none counts as a copy.
    """
    by_size: dict[int, list[str]] = {}
    for name, path in files.items():
        try:
            size = path.stat().st_size
        except OSError:  # reading it reports the problem
            continue
        by_size.setdefault(size, []).append(name)
    copies: dict[tuple[int, bytes], list[str]] = {}
    for size, names in by_size.items():
        for name in names if len(names) > 1 else ():
            copies.setdefault((size, _sample(files[name], size)), []).append(name)
    return [names for names in copies.values() if 1 < len(names) <= len(files) / 2]


def _sample(path: Path, size: int) -> bytes:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            for start in (0, size // 2, max(0, size - _BLOCK)):
                file.seek(start, os.SEEK_SET)
                digest.update(file.read(_BLOCK))
    except OSError:
        return os.fsencode(path)
    return digest.digest()
