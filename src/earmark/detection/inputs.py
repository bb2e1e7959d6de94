"""The recordings that a job is given, and those of earlier runs that are no longer there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from earmark import audio
from earmark.audio.containers import folder_trouble, plain_name
from earmark.detection.ledger import Entry
from earmark.errors import ArgumentError, DataError

__all__ = ["check_exists", "find_missing", "find_recordings", "status_of"]


def find_recordings(inputs: Iterable[str | os.PathLike[str]], out: Path | None = None) -> list[tuple[Path, Path]]:
    """Audio files (root, path) in folders, sorted, and files that are given themselves; each once, absolute.

    A file that is given itself is included whatever its name and whether or not it exists; reading it reports what is
    wrong with it. So are files in folders that have to be converted first, and folders that cannot be read.

    Parameters
    ----------
    inputs
        Files and folders.
    out
        Folder of the job, which is not searched.
    """
    real_out = None if out is None else os.path.realpath(out)
    found: dict[Path, Path] = {}
    for given in inputs:
        root = Path(os.path.abspath(given))
        if not root.is_dir():
            found.setdefault(root, root.parent)
            continue
        if real_out is not None and os.path.realpath(root) == real_out:
            raise ArgumentError(f"{root} holds the recordings; choose another folder for the results")
        unreadable: list[Path] = []
        files = audio.find(root, suffixes=(*audio.SUFFIXES, *audio.FOREIGN), unreadable=unreadable.append)
        paths = sorted([*files, *unreadable])
        skipped = {folder for folder in {path.parent for path in paths} if _is_inside(folder, real_out)}
        for path in paths:
            if path.parent not in skipped:
                found.setdefault(path, root if path != root else root.parent)
    return [(root, path) for path, root in found.items()]


def check_exists(given: Sequence[Path]) -> None:
    """Refuse a call of which nothing exists, before a folder is created for it."""
    if given and not any(os.path.lexists(path) for path in given):
        others = f", nor are the {len(given) - 1} others" if len(given) > 1 else ""
        raise DataError(f"{plain_name(given[0])}: there is no such file or folder{others}")


def find_missing(entries: Iterable[Entry], given: Iterable[Path], found: Sequence[tuple[Path, Path]]) -> set[Path]:
    """Recordings of earlier runs that have been removed since.

    A recording is missing if its file does not exist, although it was given itself, or although its folder was given
    and holds other recordings. A folder without any is taken for a disk that is not mounted.

    Parameters
    ----------
    given
        Files and folders as the user gave them.
    found
        What `find_recordings` made of them.
    """
    named = {Path(os.path.abspath(path)) for path in given}
    searched = {root for root, path in found if path not in named}
    asked = {path for _, path in found}
    missing: set[Path] = set()
    for entry in entries:
        if entry.path in asked:
            is_candidate = entry.decoder is not None  # without results, it is read, which reports what is wrong
        else:
            is_candidate = entry.state == "failed" or not searched.isdisjoint(entry.path.parents)
        if is_candidate and _is_gone(entry.path):
            missing.add(entry.path)
    return missing


def status_of(path: Path) -> os.stat_result | None:
    """Size and times of a file; None if the system does not tell."""
    try:
        return path.stat()
    except (OSError, ValueError):  # reading it will report what is wrong
        return None


def _is_gone(path: Path) -> bool:
    """Whether there is no file at a path, nor a folder that cannot be read; False if this cannot be determined."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return path.is_dir() and folder_trouble(path) is None


def _is_inside(folder: Path, root: str | None) -> bool:
    real = os.path.realpath(folder)
    return root is not None and (real == root or real.startswith(root + os.sep))
