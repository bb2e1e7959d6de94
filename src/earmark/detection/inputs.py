"""Recordings of a job and their names.

The name of a recording is its path relative to the folder that was given, or its file name if it was given itself.
Characters that tables cannot hold (control characters, backslashes, bytes that are not UTF-8, white space at the ends)
are written as %0A. Names are unique: on a collision the name of the folder is put in front.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path

from earmark import audio
from earmark.audio.containers import folder_problem, plain_name
from earmark.detection.ledger import UNSAFE, Entry
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.text import counted

_UNSAFE = re.compile(rf"^\s+|\s+\Z|{UNSAFE}")  # white space at the ends too


def find_recordings(inputs: Iterable[str | os.PathLike[str]], out: Path | None = None) -> list[tuple[Path, Path]]:
    """Absolute paths (root, path) of files that are given, and of audio files in folders that are given, sorted.

    A file that is given is included whatever its name and whether or not it exists; reading it reports what is wrong.
    So are files in folders that need conversion, and folders that cannot be read. `out` is not searched.
    """
    real_out = None if out is None else Path(os.path.realpath(out))
    roots: dict[Path, Path] = {}  # by path of the recording
    for given in inputs:
        root = Path(os.path.abspath(given))
        if not root.is_dir():
            roots.setdefault(root, root.parent)
            continue
        if Path(os.path.realpath(root)) == real_out:
            raise ArgumentError(f"{root} contains the recordings; choose another folder for the results")
        unreadable: list[Path] = []
        files = audio.find(root, suffixes=(*audio.SUFFIXES, *audio.FOREIGN), unreadable=unreadable.append)
        paths = sorted([*files, *unreadable])
        folders = {path.parent for path in paths}
        skipped = {place for place in folders if real_out and Path(os.path.realpath(place)).is_relative_to(real_out)}
        for path in paths:
            if path.parent not in skipped:
                roots.setdefault(path, root if path != root else root.parent)
    return [(root, path) for path, root in roots.items()]


def choose_names(recordings: Iterable[tuple[Path, Path]], taken: Mapping[Path, str]) -> list[tuple[Path, str]]:
    """Unique names for recordings (root, path); known paths keep theirs.

    >>> choose_names([(Path("/a"), Path("/a/x.wav")), (Path("/b"), Path("/b/x.wav"))], {})
    [(PosixPath('/a/x.wav'), 'x.wav'), (PosixPath('/b/x.wav'), 'b/x.wav')]
    """
    used = set(taken.values())
    named = []
    for root, path in recordings:
        name = taken.get(path) or next(name for name in _candidates(root, path) if name not in used)
        used.add(name)
        named.append((path, name))
    return named


def table_name(name: str) -> str:
    r"""A name for tables and output files, with characters that they cannot hold as %0A.

    >>> table_name("night 1/a\nb.wav"), table_name("caf\udce9.wav"), table_name(" a.wav")
    ('night 1/a%0Ab.wav', 'caf%E9.wav', '%20a.wav')
    """
    return "/".join(_UNSAFE.sub(_escaped, part) for part in name.split("/"))


def _escaped(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in os.fsencode(match[0]))


def check_exists(given: Sequence[Path]) -> None:
    """Raise an error if nothing that was given exists."""
    if given and not any(os.path.lexists(path) for path in given):
        others = f" and {counted(len(given) - 1, 'other')}" if len(given) > 1 else ""
        raise DataError(f"{plain_name(given[0])}{others}: no such file or folder")


def find_missing(entries: Iterable[Entry], given: Iterable[Path], recordings: Sequence[tuple[Path, Path]]) -> set[Path]:
    """Recordings of earlier runs that have been removed since.

    A recording is missing if its file does not exist, although it was given itself, or although its folder was given
    and contains other recordings. A folder without any recordings is assumed to be an unmounted disk. `recordings` is
    the result of `find_recordings(given)`.
    """
    named = {Path(os.path.abspath(path)) for path in given}
    searched = {root for root, path in recordings if path not in named}
    paths = {path for _, path in recordings}
    missing: set[Path] = set()
    for entry in entries:
        if entry.path in paths:
            is_candidate = entry.decoder is not None  # without results, it is read, which reports what is wrong
        else:
            is_candidate = entry.state == "failed" or not searched.isdisjoint(entry.path.parents)
        if is_candidate and _is_gone(entry.path):
            missing.add(entry.path)
    return missing


def reason_of(error: object, path: Path) -> str:
    """An error as one line, without the path of the recording.

    >>> reason_of(OSError("no\\nspace"), Path("a.wav"))
    'OSError: no space'
    """
    message = str(error).removeprefix(f"{plain_name(path)}: ")
    return " ".join((message if isinstance(error, EarmarkError) else f"{type(error).__name__}: {message}").split())


def status_of(path: Path) -> os.stat_result | None:
    """Size and times of a file; None if they cannot be read."""
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
    return path.is_dir() and folder_problem(path) is None


def _candidates(root: Path, path: Path) -> Iterator[str]:
    """Names for a recording, best first."""
    relative, folder = path.relative_to(root).as_posix(), root.name or "root"
    yield table_name(relative)
    yield table_name(f"{folder}/{relative}")
    for number in count(2):
        yield table_name(f"{folder}-{number}/{relative}")
