"""Files written whole or not at all, and JSON that every language can read."""

from __future__ import annotations

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

from earmark.errors import ArgumentError

__all__ = ["json_text", "make_folder", "remove_drafts", "written_whole"]

_DRAFT = re.compile(r"\.(.+)-[a-z0-9_]{8}", re.DOTALL)  # the stem of what `written_whole` writes to


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place to write that becomes `path` when the block ends well, and vanishes when it does not.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("whole", encoding="utf-8")
    ...     (Path(folder) / "a.txt").read_text(encoding="utf-8"), len(os.listdir(folder))
    ('whole', 1)
    """
    # not by mkstemp, whose files are for their owner alone: this one may be read by whom the system lets read new files
    draft = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    mode = draft.stat().st_mode
    try:
        yield draft
        draft.chmod(mode)  # some libraries write to another file, and put it in its place
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def remove_drafts(files: Iterable[Path]) -> None:
    """Take away what processes that were killed in `written_whole` had written of these files, which stay.

    Nobody may be writing them. Only names that `written_whole` gives to their drafts are looked for, since other hidden
    files are somebody's.
    """
    names = defaultdict[Path, set[str]](set)
    for file in files:
        names[file.parent].add(file.name)
    for folder, own in names.items():
        for path in folder.iterdir() if folder.is_dir() else ():
            stem = path.stem
            while path.name not in own and (draft := _DRAFT.fullmatch(stem)):
                stem = draft[1]  # which may be a draft itself
                if stem + path.suffix in own:
                    path.unlink(missing_ok=True)
                    break


def make_folder(path: Path) -> Path:
    """The folder, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be made a folder: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise ArgumentError(f"{path} cannot be written to")
    return path


def json_text(value: Any, **style: Any) -> str:
    """Strict JSON, in which what is no number is null; `style` as for `json.dumps`.

    >>> json_text({"f1": float("nan"), "interval": (0.25, float("inf"))})
    '{"f1": null, "interval": [0.25, null]}'
    """
    return json.dumps(_with_null(value), allow_nan=False, **style)


def _with_null(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_null(own) for key, own in value.items()}
    if isinstance(value, list | tuple):
        return [_with_null(own) for own in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
