"""Atomic writes, file locks, and strict JSON."""

import json
import math
import os
import re
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from earmark.errors import ArgumentError

__all__ = ["json_text", "locked", "make_folder", "remove_drafts", "written_whole"]

_DRAFT = re.compile(r"\.(.+)-[a-z0-9_]{8}", re.DOTALL)  # stem of the temporary files of `written_whole`


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Write a file atomically: yields a temporary path that replaces `path`, or is removed if the block raises.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("whole", encoding="utf-8")
    ...     (Path(folder) / "a.txt").read_text(encoding="utf-8"), len(os.listdir(folder))
    ('whole', 1)
    """
    # not mkstemp, which restricts the file to its owner: new files get the permissions of the user's umask
    draft = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    mode = draft.stat().st_mode
    try:
        yield draft
        draft.chmod(mode)  # some libraries replace the file
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


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
def locked(path: Path, *, message: str, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which the system releases when the process ends, however it ends.

    If another process holds it, wait, or with `wait=False` raise an ArgumentError with the message.
    """
    try:
        with FileLock(path, blocking=wait):
            yield
    except Timeout:
        raise ArgumentError(message) from None


def make_folder(path: Path) -> Path:
    """Create a folder if necessary, and check that it is writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{path}: cannot create this folder: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise ArgumentError(f"{path}: this folder is not writable")
    return path


def json_text(value: Any, **style: Any) -> str:
    """Strict JSON: NaN and infinities become null. `style` is passed to `json.dumps`.

    >>> json_text({"f1": float("nan"), "interval": (0.25, float("inf"))})
    '{"f1": null, "interval": [0.25, null]}'
    """
    return json.dumps(_with_null(value), allow_nan=False, **style)


def _with_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_null(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
