"""Text of label files: encodings, lines, cells, numbers and names."""

import codecs
import gzip
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from earmark.errors import DataError
from earmark.files import make_folder, written_whole

SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
"""Suffixes of spreadsheets, which cannot be read."""

_SOUND = re.compile(
    r"(?<=[^/])\.(aac|aif|aifc|aiff|au|caf|flac|m4a|mp3|mp4|oga|ogg|opus|snd|w64|wav|wave|wma)\Z", re.IGNORECASE
)
_LINE_END = re.compile(r"\r\n|\r|\n")
_TAIL = re.compile(r"(\.table\.\d+|\.birdnet)?\.selections?(\.table)?\.txt$|\.(txt|tsv|csv|jams|jsonl|json)$", re.I)


def read_text(path: Path) -> str:
    """Text of a file, decompressed if needed: UTF-8, UTF-16 with a byte order mark, or Latin-1 with a warning."""
    if path.suffix.lower() in SPREADSHEETS:
        refuse_spreadsheet(path)
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        raise DataError(f"{path}: expected labels as text, got binary data")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        warnings.warn(f"{path}:{line}: not UTF-8; read as Latin-1. Save the file as UTF-8", stacklevel=2)
        return data.decode("latin-1")


def refuse_spreadsheet(path: Path, hint: str = "") -> NoReturn:
    """Raise the error for a spreadsheet."""
    raise DataError(f"{path}: spreadsheets cannot be read; save it as CSV{hint}")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    r"""Non-blank lines with their numbers, for any line ending.

    >>> list(numbered_lines("a\r\n\r\nb\n"))
    [(1, 'a'), (3, 'b')]
    """
    return ((number, line) for number, line in enumerate(_LINE_END.split(text), 1) if line.strip())


def tab_cells(text: str) -> Iterator[tuple[int, list[str]]]:
    """Non-blank lines of a tab-separated table without quotes, as stripped cells."""
    return ((number, [cell.strip() for cell in line.split("\t")]) for number, line in numbered_lines(text))


def first_line(head: str) -> str:
    """The first non-blank line."""
    return next((line for line in _LINE_END.split(head) if line.strip()), "")


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
        raise DataError(f"{what} is not a number: {text!r}{hint}") from None


def check_text(text: str, format: str, forbidden: str = "\t\n\r") -> str:
    """Return the text if a format can store it, else raise an error."""
    if text != text.strip():
        raise DataError(f"{text!r} starts or ends with white space, which {format} cannot store; rename it or use json")
    if any(char in text for char in forbidden + "\0"):
        raise DataError(f"{text!r} has a character that {format} cannot store; rename it or use json")
    return text


def check_name(text: str, format: str, forbidden: str | None = "\t\n\r") -> str:
    """The same for file names, in which a backslash would be read as a slash; None forbids nothing else."""
    if "\\" in text:
        raise DataError(f"{text!r} has a backslash, which would be read as a path separator; rename the file")
    return text if forbidden is None else check_text(text, format, forbidden)
