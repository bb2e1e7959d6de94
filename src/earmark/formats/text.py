"""Text of label files: sizes, encodings, lines, cells, numbers and names."""

import codecs
import csv
import gzip
import os
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from earmark.errors import ArgumentError, DataError
from earmark.files import make_folder, written_whole
from earmark.formats.excel import workbook_text
from earmark.text import printable

WORKBOOK = ".xlsx"
"""Suffix of Excel workbooks, which are read as tables with commas (extra `excel`)."""

SPREADSHEETS = (".xls", ".ods", ".numbers")
"""Suffixes of spreadsheets that cannot be read."""

_SOUND = re.compile(
    r"(?<=[^/])\.(aac|aif|aifc|aiff|au|caf|flac|m4a|mp3|mp4|oga|ogg|opus|snd|w64|wav|wave|wma)\Z", re.IGNORECASE
)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n|\Z)")
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # also line separators and lone surrogates
_LONGEST_LINE = 1 << 20
_LONGEST_MESSAGE = 400
_LONGEST_NAME = 4096
_SIZE = re.compile(r"([1-9]\d{0,5})([KMG])", re.IGNORECASE)
_LIMIT = "EARMARK_LARGEST_TABLE"
_TAIL = re.compile(
    r"(\.table\.\d+|\.birdnet)?\.selections?(\.table)?\.txt$|\.(txt|tsv|csv|xlsx|jams|jsonl|json)$", re.I
)


def largest_table() -> int:
    """Bytes of text that a label file may have, decompressed: 256 MiB, or EARMARK_LARGEST_TABLE, such as 2G."""
    text = os.environ.get(_LIMIT, "256M")
    size = _SIZE.fullmatch(text)
    if size is None:
        raise ArgumentError(f"{_LIMIT}: expected a size such as 512M or 2G, got {text!r}")
    return int(size[1]) << {"K": 10, "M": 20, "G": 30}[size[2].upper()]


def too_large(limit: str) -> DataError:
    """The error for a label file beyond a limit that depends on `largest_table`."""
    twice = max(largest_table() >> 19, 1)
    return DataError(f"expected at most {limit}, got more; to read it, set {_LIMIT}={twice}M in the environment")


def read_text(path: Path) -> str:
    """Text of a file, decompressed if needed: UTF-8, UTF-16 with a byte order mark, or Latin-1 with a warning.

    The text of an Excel workbook is its first sheet as a table with commas. A file beyond `largest_table` is rejected
    before more of it is read or decompressed.
    """
    if path.suffix.lower() in SPREADSHEETS:
        refuse_spreadsheet(path)
    limit = largest_table()
    if path.suffix.lower() == WORKBOOK:
        return workbook_text(path, limit)
    try:
        with path.open("rb") as file:
            is_gzip = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = (gzip.GzipFile(fileobj=file) if is_gzip else file).read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > limit:
        raise DataError(f"{path}: {too_large(f'{limit / 2**20:g} MiB of text')}")
    return _decoded(path, data)


def _decoded(path: Path, data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        raise DataError(f"{path}: expected labels as text, got binary data")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        # attributed to this line for every caller: the command line prints warnings of this package as one line
        warnings.warn(f"{path}:{line}: not UTF-8; read as Latin-1. Save the file as UTF-8", stacklevel=1)
        return data.decode("latin-1")


def refuse_spreadsheet(path: Path, hint: str = "") -> NoReturn:
    """Raise the error for a spreadsheet."""
    raise DataError(f"{path}: spreadsheets of this kind cannot be read; save it as .xlsx or CSV{hint}")


def one_line(message: str) -> str:
    """A message on one line of moderate length; control characters are escaped."""
    message = printable(message)
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."


def whole_lines(text: str) -> Iterator[str]:
    r"""Lines with their ends, one at a time, since a list of them would need many times the memory of the text.

    A line that is too long for a table raises csv.Error, as a cell that is too long does in `csv.reader`.

    >>> list(whole_lines("a\r\n\rb"))
    ['a\r\n', '\r', 'b']
    """
    for match in _LINE.finditer(text):
        if match.end() - match.start() > _LONGEST_LINE:
            raise csv.Error(f"line longer than {_LONGEST_LINE:,} characters")
        if match[0]:
            yield match[0]


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Non-blank lines with their numbers, for any line ending.

    >>> list(numbered_lines("a\r\n\r\nb\n"))
    [(1, 'a'), (3, 'b')]
    """
    return ((number, line.rstrip("\r\n")) for number, line in enumerate(whole_lines(text), 1) if line.strip())


def tab_cells(text: str) -> Iterator[tuple[int, list[str]]]:
    """Non-blank lines of a tab-separated table without quotes, as stripped cells."""
    return ((number, [cell.strip() for cell in line.split("\t")]) for number, line in numbered_lines(text))


def first_line(head: str) -> str:
    """The first non-blank line."""
    return next((line for _, line in numbered_lines(head)), "")


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, compressed if its name ends in .gz; creates its folder."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        bad = text[error.start : error.end]
        raise DataError(f"{path}: {bad!r} cannot be written as UTF-8; rename the file or class") from error
    make_folder(path.parent)
    with written_whole(path) as draft:
        draft.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def has_suffix(path: Path, suffix: str | tuple[str, ...]) -> bool:
    """Whether a file has a suffix, compressed or not."""
    return path.name.removesuffix(".gz").endswith(suffix)


def stem_of(path: Path) -> str:
    """Name of the recording that a label file is named after.

    >>> stem_of(Path("night.Table.1.selections.txt")), stem_of(Path("x_30.000_40.000.txt.gz")), stem_of(Path("a"))
    ('night', 'x_30.000_40.000', 'a')
    """
    name = path.name.removesuffix(".gz")
    return _TAIL.sub("", name) or name


def without_sound_suffix(filename: str) -> str:
    """A file name without an audio suffix; other dots stay.

    >>> without_sound_suffix("a/x_30.000_40.000.WAV"), without_sound_suffix("x_30.000_40.000")
    ('a/x_30.000_40.000', 'x_30.000_40.000')
    """
    return _SOUND.sub("", filename)


def number(text: str, what: str) -> float | None:
    """A number with a decimal point or comma; None for an empty cell.

    >>> number("1,5", "onset"), number("", "onset")
    (1.5, None)
    """
    text = text.strip()
    if not text:
        return None
    plain = text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
    try:
        if "_" in plain:  # Python accepts 1_000
            raise ValueError
        return float(plain)
    except ValueError:
        hint = "; write seconds, as in 1.5" if ":" in text else ""
        raise DataError(f"{what} is not a number: {text[:60]!r}{hint}") from None


def file_name(text: str) -> str:
    """A file name as in label tables, with forward slashes; impossible names are rejected."""
    if not text:
        raise DataError("no file name")
    if len(text) > _LONGEST_NAME:
        raise DataError(f"expected a file name of at most {_LONGEST_NAME:,} characters, got {len(text):,}")
    if "\0" in text:
        raise DataError(f"file name {text!r} has a NUL character")
    return text.replace("\\", "/")


def class_name(text: str) -> str:
    r"""A class name without white space around it; control characters are rejected.

    >>> class_name(" dog ")
    'dog'
    >>> class_name("dog\x1b[2J")
    Traceback (most recent call last):
    earmark.errors.DataError: class name 'dog\x1b[2J' has control characters or undecodable bytes; rename the class
    """
    text = text.strip()
    if len(text) > _LONGEST_NAME:
        raise DataError(f"expected a class name of at most {_LONGEST_NAME:,} characters, got {len(text):,}")
    if _CONTROL.search(text):
        raise DataError(f"class name {text!r} has control characters or undecodable bytes; rename the class")
    return text


def check_class(text: str, format: str) -> str:
    """Return a class name if it is the same when it is read again, else raise an error."""
    if text != class_name(text):
        raise DataError(f"{text!r} starts or ends with white space, which {format} cannot store; rename it")
    return text


def check_name(text: str, format: str, forbidden: str | None = "\t\n\r") -> str:
    """Return the name of a file if a format can store it, else raise an error.

    A backslash would be read as a slash. Nothing else is forbidden where `forbidden` is None: names of files may have
    control characters and white space.
    """
    if "\\" in text:
        raise DataError(f"{text!r} has a backslash, which would be read as a path separator; rename the file")
    file_name(text)
    if forbidden is None:
        return text
    if text != text.strip():
        raise DataError(f"{text!r} starts or ends with white space, which {format} cannot store; rename it or use json")
    if any(char in text for char in forbidden):
        raise DataError(f"{text!r} has a character that {format} cannot store; rename it or use json")
    return text
