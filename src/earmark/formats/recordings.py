"""What formats with a file for each recording share."""

from __future__ import annotations

from collections.abc import Iterator

from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError

__all__ = ["LOST", "LOST_TIMED", "the_recording", "timed"]

LOST = "absent and unknown classes, splits, .wav and the like in file names, the order of files and classes"
"""What of a table a format per recording does not say."""

LOST_TIMED = f"{LOST} (labels without times are refused)"


def the_recording(table: LabelTable) -> str:
    """The one recording that a table is about."""
    if len(table.filenames) != 1:
        raise ArgumentError(
            f"one file holds the labels of one recording, the table has {len(table.filenames)}; write_labels writes a "
            "folder of them"
        )
    return table.filenames[0]


def timed(table: LabelTable, format: str) -> Iterator[tuple[Label, float, float]]:
    """Rows that say that something is there, with onset and offset; one without is an error."""
    for row in table:
        if row.present and (row.onset is None or row.offset is None):
            raise DataError(
                f"{row.filename}: {row.label!r} has no times, and {format} has no labels without; "
                "write tsv, csv, json or jams"
            )
        if row.onset is not None and row.offset is not None:
            yield row, float(row.onset), float(row.offset)
