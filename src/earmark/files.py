"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from earmark.errors import ArgumentError

__all__ = ["make_folder", "written_whole"]


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A place to write that becomes `path` when the block ends well, and vanishes when it does not.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with written_whole(Path(folder) / "a.txt") as draft:
    ...         _ = draft.write_text("whole")
    ...     (Path(folder) / "a.txt").read_text(), len(os.listdir(folder))
    ('whole', 1)
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o644)  # mkstemp's is 0600
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def make_folder(path: Path) -> Path:
    """The folder, made if need be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be made a folder: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise ArgumentError(f"{path} cannot be written to")
    return path
