"""Durable atomic writes, file locks that name their holder, strict JSON, and the folder for caches."""

import hashlib
import json
import math
import os
import platform
import re
import secrets
import shlex
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from earmark import ownership
from earmark.errors import ArgumentError
from earmark.platforms import flush, refuse_link, replace

__all__ = [
    "as_paths",
    "cache_folder",
    "flush",
    "json_digest",
    "json_text",
    "locked",
    "make_folder",
    "named_errors",
    "path_text",
    "remove_drafts",
    "written_whole",
]

_PROBE = 1 << 16  # bytes
_PROBLEM = "cannot be written: "
_WRITE_TABLE = "; write it to a file, for example with "
_DRAFT = re.compile(r"\.(.+)~[0-9a-f]{8}", re.DOTALL)  # stem of the temporary files of `written_whole`


@contextmanager
def written_whole(path: Path, *, admit: Callable[[Path, Path], object] = ownership.admit) -> Iterator[Path]:
    """Write a file atomically: yields a temporary path that replaces `path`, or is removed if the block raises.

    The content is on the disk before the file is renamed, and the new name when the block ends, so that not even a
    power cut leaves half a file. A full disk is an OSError with the name of the file, whatever library wrote it.
    `admit` is called with both paths first; by default it protects files that are not earmark's (`earmark.ownership`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("whole", encoding="utf-8")
    ...     (Path(folder) / "a.txt").read_text(encoding="utf-8"), len(os.listdir(folder))
    ('whole', 1)
    """
    # not mkstemp, which restricts the file to its owner: new files get the permissions of the user's umask
    draft = path.with_name(f".{path.stem}~{secrets.token_hex(4)}{path.suffix}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        ownership.DRAFTS.add(draft)
        mode = draft.stat().st_mode
        yield draft
        draft.chmod(mode)  # some libraries replace the file
        flush(draft)
        admit(path, draft)
        replace(draft, path)
        flush(path.parent)
    except Exception as error:
        reason = error if isinstance(error, OSError) and error.errno else _write_error(draft)
        if reason is None or (reason.filename and str(draft) not in (str(reason.filename), str(reason.filename2))):
            raise
        raise _named(reason, path) from error
    finally:
        ownership.DRAFTS.discard(draft)
        draft.unlink(missing_ok=True)


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Add the name of a file that grows in place to system errors without one, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None:
            raise _named(error, path) from error
        raise


def _named(error: OSError, path: Path) -> OSError:
    problem = (error.strerror or str(error)).removeprefix(_PROBLEM)
    return OSError(error.errno, _PROBLEM + problem, str(path))


def _write_error(path: Path) -> OSError | None:
    """The system's reason why a file cannot grow, which many libraries hide: a full disk, a limit."""
    try:
        with path.open("ab") as file:
            file.write(bytes(_PROBE))
        flush(path)
    except OSError as error:
        return error
    return None


def remove_drafts(files: Iterable[Path]) -> None:
    """Remove temporary files that killed processes left behind in `written_whole`; the files themselves stay.

    Nothing may be writing them. Other hidden files are not touched.
    """
    names = defaultdict[Path, set[str]](set)
    for file in files:
        names[file.parent].add(file.name)
    for folder, wanted in names.items():
        for path in folder.iterdir() if folder.is_dir() else ():
            stem = path.stem
            while path.name not in wanted and (draft := _DRAFT.fullmatch(stem)):
                stem = draft[1]  # which may be a draft itself
                if stem + path.suffix in wanted:
                    path.unlink(missing_ok=True)
                    break


@contextmanager
def locked(folder: Path, *, wait: bool = False, name: str = ".lock") -> Iterator[None]:
    """Hold the lock of a folder, which the system releases when the process ends, however it ends.

    If another process holds it, wait, or raise an ArgumentError that names the process. The file `.lock.json` describes
    that process, only for this message. A file of that name with other contents is not touched.
    """
    holder = folder / f"{name}.json"
    refuse_link(folder / name)
    try:
        with FileLock(folder / name, blocking=wait):
            is_named = _is_free(holder)
            try:
                with suppress(OSError):  # if the disk is full, the work under the lock reports it
                    if is_named:
                        holder.write_text(json.dumps(_this_process()), encoding="utf-8")
                yield
            finally:
                if is_named:
                    holder.unlink(missing_ok=True)
    except Timeout:
        who = _holder(holder)
        raise ArgumentError(f"{folder}: {who} is using this folder; wait for it, or choose another folder") from None


def _holder(path: Path) -> str:
    """The process that holds a lock. It may have acquired the lock a moment ago and not have written its name yet."""
    for _ in range(5):
        with suppress(OSError, ValueError, LookupError, TypeError):
            about = json.loads(_start_of(path))
            return f"process {about['process']} on {about['host']} ({about['command']})"
        time.sleep(0.1)
    return "another process"


def _this_process() -> dict[str, object]:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"process": os.getpid(), "host": platform.node(), "command": command}


def _is_free(holder: Path) -> bool:
    """Whether a file that names the holder of a lock may be written: there is none, or one of a killed process."""
    if not os.path.lexists(holder):
        return True
    with suppress(OSError):
        start = _start_of(holder)
        return not holder.is_symlink() and (not start or start.startswith(b'{"process": '))
    return False


def _start_of(path: Path) -> bytes:
    if not path.is_file():  # a pipe would wait for a writer
        raise OSError(f"{path}: not a file")
    with path.open("rb") as file:
        return file.read(_PROBE)


def make_folder(path: Path) -> Path:
    """Create a folder if necessary, and check that it is writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot create this folder: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise ArgumentError(f"{path}: this folder is not writable")
    return path


def cache_folder() -> Path:
    """The folder for what can be recomputed: in the user's cache, or below EARMARK_CACHE."""
    base = os.environ.get("EARMARK_CACHE")
    return Path(base, "earmark") if base else user_cache_path("earmark")


def as_paths(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[Path]:
    """One path, or several, as a list.

    >>> as_paths("a.wav"), as_paths(["a.wav"])
    ([PosixPath('a.wav')], [PosixPath('a.wav')])
    """
    paths = given if isinstance(given, Iterable) and not isinstance(given, str | os.PathLike) else [given]
    return [Path(path_text(path)) for path in paths]


def path_text(given: object, name: str = "path") -> str:
    """The text of a path that is the argument `name`; an empty one is an error, as it would mean the current folder.

    >>> path_text(Path("run"), "out"), path_text("urban-sed:/data", "data")
    ('run', 'urban-sed:/data')
    >>> path_text("", "data")
    Traceback (most recent call last):
    earmark.errors.ArgumentError: data: expected a path, got an empty text; the current folder is '.'
    """
    if isinstance(given, str | os.PathLike):
        if text := os.fspath(given):
            return str(text)
        raise ArgumentError(f"{name}: expected a path, got an empty text; the current folder is '.'")
    how = ""
    if hasattr(given, "to_csv"):  # a data frame
        how = f"{_WRITE_TABLE}frame.to_csv('recordings/labels.csv', index=False)"
    elif hasattr(given, "to_pandas"):  # a label table
        how = f"{_WRITE_TABLE}earmark.formats.write_labels(table, 'recordings/labels.csv', 'csv')"
    raise ArgumentError(f"{name}: expected a path, got {type(given).__name__}{how}")


def json_text(value: Any, **style: Any) -> str:
    """Strict JSON: NaN and infinities become null; DEL is escaped as other control characters are.

    Numbers may be those of NumPy. `style` is passed to `json.dumps`.

    >>> json_text({"f1": float("nan"), "interval": (0.25, float("inf"))})
    '{"f1": null, "interval": [0.25, null]}'
    """
    return json.dumps(_plain(value), allow_nan=False, **style).replace("\x7f", r"\u007f")


def json_digest(value: Any) -> str:
    """16 hexadecimal digits that identify plain values; the order of keys does not matter.

    >>> json_digest({"a": 1, "b": 2}) == json_digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if getattr(value, "ndim", None) == 0:  # a number of NumPy
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
