"""Recordings that a job is given: which there are, and what has become of those that it had."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from earmark import audio
from earmark.audio.containers import folder_trouble, plain_name
from earmark.errors import ArgumentError, DataError

__all__ = [
    "check_there",
    "digest_of",
    "find_recordings",
    "is_below",
    "is_gone",
    "is_past",
    "is_same_file",
    "searched_folders",
    "status_of",
]

_PART = 1 << 16


def find_recordings(inputs: Iterable[str | os.PathLike[str]], out: Path | None = None) -> list[tuple[Path, Path]]:
    """Files of sound (root, path) in folders, sorted, and those given themselves; each once, absolute.

    A file that is given itself counts whatever its name and whether or not it is there: what is wrong with it is said
    when it is read. So do sound in a folder that must be converted first, and a folder that cannot be looked into, such
    as a card's lost+found. What lies in `out` is left out.

    Parameters
    ----------
    inputs
        Files and folders.
    out
        Folder of the job.
    """
    own = None if out is None else os.path.realpath(out)
    found: dict[Path, Path] = {}
    for given in inputs:
        place = Path(os.path.abspath(given))
        if not place.is_dir():
            found.setdefault(place, place.parent)
            continue
        if own is not None and os.path.realpath(place) == own:
            raise ArgumentError(f"{place} holds the recordings; choose another folder for what is found in them")
        closed: list[Path] = []
        below = audio.find(place, suffixes=(*audio.SUFFIXES, *audio.FOREIGN), unreadable=closed.append)
        below = sorted([*below, *closed])
        own_folders = {folder for folder in {path.parent for path in below} if _lies_in(folder, own)}
        for path in below:
            if path.parent not in own_folders:
                found.setdefault(path, place if path != place else place.parent)
    return [(root, path) for path, root in found.items()]


def check_there(given: Sequence[Path]) -> None:
    """Refuse a slip of the pen before a folder is made for it; of several, each that is not there is a line."""
    if given and not any(os.path.lexists(path) for path in given):
        others = f", nor are the {len(given) - 1} others" if len(given) > 1 else ""
        raise DataError(f"{plain_name(given[0])}: there is no such file or folder{others}")


def searched_folders(given: Sequence[Path], found: Iterable[tuple[Path, Path]]) -> list[Path]:
    """Folders that were given and have recordings: an empty one may be a disk that is not mounted."""
    given = [Path(os.path.abspath(path)) for path in given]
    own = set(given)
    parents = {path.parent for _, path in found if path not in own}  # what is given itself need not be there
    folders = {folder for parent in parents for folder in (parent, *parent.parents)}
    return [place for place in given if place in folders]


def is_below(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is one of some folders, or in one."""
    return not {path, *path.parents}.isdisjoint(folders)


def is_gone(path: Path) -> bool:
    """Whether there is nothing any more at a path; not if a disk or a folder does not let one look."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def status_of(path: Path) -> os.stat_result | None:
    """What the system says of a file; None if it does not."""
    try:
        return path.stat()
    except (OSError, ValueError):  # reading it will say what is wrong
        return None


def digest_of(path: Path) -> str | None:
    """A digest of a file's first and last 64 KiB; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            parts = [file.read(_PART)]
            file.seek(max(file.tell(), file.seek(0, os.SEEK_END) - _PART))
            parts.append(file.read(_PART))
    except OSError:
        return None
    return hashlib.sha256(b"".join(parts)).hexdigest()[:32]


def is_past(path: Path) -> bool:
    """Whether what failed is no longer there, such as sound that was converted, or is a folder that opens now."""
    return not os.path.lexists(path) or (os.path.isdir(path) and folder_trouble(path) is None)


def is_same_file(before: os.stat_result, after: os.stat_result | None) -> bool:
    """Whether a file has not changed, by size and time."""
    return after is not None and (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def _lies_in(folder: Path, own: str | None) -> bool:
    real = os.path.realpath(folder)
    return own is not None and (real == own or real.startswith(own + os.sep))
