"""What a label format is: a way to read a file into a `LabelTable`, and to write one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.registry import Registry

__all__ = ["FORMATS", "Format", "at_line"]


class Format(ABC):
    """One way to keep labels in files."""

    name: ClassVar[str]
    suffix: ClassVar[str]
    """Of the files it writes: ".tsv"."""
    per_recording: ClassVar[bool] = False
    """Whether a file holds the labels of one recording, whose name is then the label file's (without the suffix)."""
    loses: ClassVar[str] = ""
    """What of a table this format cannot say, in words: "files without events, negative labels"."""

    @abstractmethod
    def read(self, path: Path) -> LabelTable:
        """Labels in a file; an error names file and line."""

    @abstractmethod
    def write(self, table: LabelTable, path: Path) -> None:
        """Write a table, whole or not at all; for a format per recording it is the table of that one recording."""

    @abstractmethod
    def recognises(self, path: Path, head: str) -> bool:
        """Whether a file looks like this format; `head` is how its text begins (some thousand characters)."""


FORMATS: Registry[Format] = Registry("format")


@contextmanager
def at_line(path: Path, line: int) -> Iterator[None]:
    """Say where: an error about data raised inside is raised again with file and line in front."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}:{line}: {error}") from error
