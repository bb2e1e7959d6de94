"""Protection of users' files: a command replaces and deletes only files that a manifest lists with their hash.

    with owned(folder):
        ...                                  # files.written_whole checks and records every file below the folder

A manifest is `.earmark.jsonl` in the folder that a command writes to: a line for each file with its SHA-256, or with
the old and the new one while the file is being replaced, so that a process may be killed at any moment. A file with
another hash was edited or is not earmark's: it is replaced only if the user asks for that, and never deleted. Nothing
is written or deleted through symbolic links below the folder. The ledger of a detection job is a manifest too.

The command line works inside `replacing_nothing()`: outside such folders, no existing file is replaced at all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Protocol

from earmark.errors import ArgumentError, DataError
from earmark.platforms import append_line, link_error
from earmark.text import first_few

__all__ = ["Owner", "admit", "other_files_note", "owned", "replacing_nothing", "set_aside", "sha256"]

MANIFEST = ".earmark.jsonl"

_owners: list[Owner] = []  # of the folders that this process is writing to, the innermost last
_replaces_nothing = False
DRAFTS: set[Path] = set()  # temporary files of this process, which it may replace


class Record(Protocol):
    """Where the hashes of files are kept, by path relative to the folder."""

    def hashes(self, key: str) -> set[str]:
        """Hashes that a file may have; empty if it is not earmark's."""

    def record_hashes(self, key: str, hashes: set[str]) -> None:
        """A file will have one of these hashes; none if it is no longer earmark's. Durable on return."""


class Owner:
    """Decides which files below a folder may be replaced or deleted.

    With `force`, files that are not earmark's are replaced too; None is like False, where users cannot ask for that.
    """

    def __init__(self, root: Path, record: Record, *, force: bool | None = None) -> None:
        self.root, self.record, self.force = root, record, force
        self._real_root = Path(os.path.realpath(root))

    def key(self, path: Path) -> str:
        """The path relative to the folder."""
        if not self.contains(path):
            raise DataError(f"{path} is not below {self.root}")
        return Path(os.path.abspath(path)).relative_to(os.path.abspath(self.root)).as_posix()

    def contains(self, path: Path) -> bool:
        """Whether a path is below the folder."""
        return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(self.root))

    def is_own(self, path: Path) -> bool:
        """Whether a file was written by earmark and not changed since."""
        return sha256(path) in self.record.hashes(self.key(path))

    def check(self, paths: Iterable[Path]) -> None:
        """Refuse, before any work, to replace files that are not earmark's."""
        for path in paths:
            self.check_links(path)
            if os.path.lexists(path) and not self.force and not self.is_own(path):
                raise _refusal(path, self.force)

    def admit(self, path: Path, draft: Path) -> None:
        """Refuse to replace a file that is not earmark's; record that it will have the content of the draft."""
        self.check_links(path)
        new, old = sha256(draft), sha256(path)
        key = self.key(path)
        known = self.record.hashes(key)
        if os.path.lexists(path) and not self.force and old not in {new, *known}:
            raise _refusal(path, self.force)
        if known != {new}:
            self.record.record_hashes(key, {new, old} - {""})

    def remove(self, path: Path) -> bool:
        """Delete a file if it is earmark's; returns whether it is gone."""
        if self.has_link(path) or not os.path.lexists(path) or not self.is_own(path):
            return not os.path.lexists(path)
        path.unlink()
        self.record.record_hashes(self.key(path), set())
        return True

    def has_link(self, path: Path) -> bool:
        """Whether the path, or a folder on the way to it, is a symbolic link."""
        return Path(os.path.realpath(path)) != self._real_root / self.key(path)

    def check_links(self, path: Path) -> None:
        """Refuse to write through a symbolic link, or a folder that is one."""
        if self.has_link(path):
            raise link_error(path)


class _Manifest:
    """Hashes in a file of JSON lines to which changes are appended; the last line about a file applies."""

    def __init__(self, root: Path) -> None:
        self._path = root / MANIFEST
        self._read = 0  # bytes
        self._hashes: dict[str, set[str]] = {}

    def hashes(self, key: str) -> set[str]:
        self._update()
        return self._hashes.get(key, set())

    def record_hashes(self, key: str, hashes: set[str]) -> None:
        append_line(self._path, json.dumps({"file": key, "sha256": sorted(hashes)}).encode() + b"\n")

    def names(self) -> set[str]:
        """Files that are or were earmark's, relative to the folder."""
        self._update()
        return set(self._hashes)

    def _update(self) -> None:
        """Read what this process and others have appended. Damaged lines are skipped: their files are not touched."""
        if not self._path.is_file():  # there is none, or a pipe, which would wait for a writer
            return
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._read += len(whole)
            for line in whole.splitlines():
                with suppress(ValueError, TypeError, LookupError, RecursionError):
                    entry = json.loads(line)
                    self._hashes[str(entry["file"])] = {str(value) for value in entry["sha256"]}


@contextmanager
def owned(
    root: Path, *, files: Iterable[Path] = (), force: bool | None = None, record: Record | None = None
) -> Iterator[Owner]:
    """Check and record every file that `written_whole` writes below a folder, in its manifest or another record.

    `files` that will be written are checked at once, before any work. A block inside another one for the same folder
    uses the record and `force` of the outer one.
    """
    outer = next((owner for owner in _owners if owner.root.absolute() == root.absolute()), None)
    owner = outer or Owner(root, record or _Manifest(root), force=force)
    owner.check(files)
    _owners.append(owner)
    try:
        yield owner
    finally:
        _owners.remove(owner)


def other_files_note(root: Path) -> str:
    """A note if a folder to write to has files that earmark did not write, hidden ones aside; else empty."""
    own = {name.split("/")[0] for name in _Manifest(root).names()}
    names = sorted(path.name for path in root.iterdir()) if root.is_dir() else []
    others = [name for name in names if name not in own and not name.startswith(".")]
    return f"{root} already contains other files, which stay as they are: {first_few(others)}" if others else ""


@contextmanager
def replacing_nothing() -> Iterator[None]:
    """Replace no file inside this block that is not below an owned folder, unless its content stays the same."""
    global _replaces_nothing
    before, _replaces_nothing = _replaces_nothing, True
    try:
        yield
    finally:
        _replaces_nothing = before


def admit(path: Path, draft: Path) -> None:
    """Raise an error if a finished draft must not replace a file, else record the replacement."""
    owners = [owner for owner in _owners if owner.contains(path)]
    if path in DRAFTS:
        return
    if owners:
        max(owners, key=lambda owner: len(owner.root.absolute().parts)).admit(path, draft)
    elif _replaces_nothing and os.path.lexists(path) and sha256(path) != sha256(draft):
        raise _refusal(path, None)


def set_aside(path: Path, suffix: str = "") -> None:
    """Rename a file that was edited: night.wav.txt to night.wav.edited.txt, or the next name that is free.

    `suffix` is the end of the name that stays, by default from the last dot on.
    """
    suffix = suffix or path.suffix
    stem = path.name.removesuffix(suffix)
    names = (f"{stem}.edited{'' if n == 1 else n}{suffix}" for n in count(1))
    path.rename(next(free for free in map(path.with_name, names) if not os.path.lexists(free)))


def sha256(path: Path) -> str:
    """SHA-256 of a regular file; empty for anything else, such as a symbolic link."""
    if path.is_symlink() or not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refusal(path: Path, force: bool | None) -> ArgumentError:
    is_forcible = force is not None
    remedy = "move it, or use --force (force=True) to replace it" if is_forcible else "move it or choose another place"
    return ArgumentError(f"{path} exists, and earmark did not write it or it was changed since; {remedy}")
