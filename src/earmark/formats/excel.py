"""Excel workbooks (.xlsx) as the text of a table with commas (extra `excel`)."""

import csv
import io
import warnings
import zipfile
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from earmark.errors import DataError, MissingExtraError

_MOST_PARTS = 10_000  # files in a workbook
_MOST_COLUMNS = 1000


def workbook_text(path: Path, limit: int) -> str:
    """The first sheet that has cells, line by line; formulas have the values that were saved with them.

    A workbook that would need more than `limit` bytes is rejected before it is decompressed.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("reading an Excel workbook", "excel") from error
    try:
        with path.open("rb") as file, warnings.catch_warnings(action="ignore"):  # on styles and extensions
            _check_size(path, zipfile.ZipFile(file), limit)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
            for sheet in book.worksheets:
                if text := _sheet_text(path, sheet, limit):
                    return text
    except (DataError, MemoryError):
        raise
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # openpyxl raises whatever a damaged workbook leads to
        raise DataError(f"{path}: not an Excel workbook, or damaged; save it again, or as CSV") from error
    return ""


def _check_size(path: Path, archive: zipfile.ZipFile, limit: int) -> None:
    parts = archive.infolist()
    if len(parts) > _MOST_PARTS or sum(part.file_size for part in parts) > limit:
        raise DataError(f"{path}: expected at most {limit / 2**20:g} MiB in a workbook, got more; save it as CSV")


def _sheet_text(path: Path, sheet: Any, limit: int) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    width = 0  # of the heading
    for row in sheet.iter_rows(values_only=True):
        used = max((i for i, value in enumerate(row, 1) if value is not None), default=0)
        if used > _MOST_COLUMNS:
            raise DataError(f"{path}: expected at most {_MOST_COLUMNS:,} columns, got {used:,}")
        cells = [_cell(value) for value in row[:used]]
        width = width or used
        writer.writerow([*cells, *[""] * (width - used)])
        if text.tell() > limit:
            raise DataError(f"{path}: expected at most {limit / 2**20:g} MiB of text, got more; save it as CSV")
    return text.getvalue() if width else ""


def _cell(value: object) -> str:
    """A cell as text, as in a CSV file.

    >>> [_cell(value) for value in (None, True, 1.0, 0.25, "dog", date(2026, 5, 14))]
    ['', '1', '1', '0.25', 'dog', '2026-05-14']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)
