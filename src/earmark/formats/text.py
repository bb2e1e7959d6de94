"""Text of label files: read whatever the encoding, written whole; numbers, words and names in it."""

from __future__ import annotations

import codecs
import gzip
import re
import warnings
from pathlib import Path
from typing import NoReturn

from earmark.errors import DataError
from earmark.files import make_folder, written_whole

__all__ = [
    "SOUND_SUFFIXES",
    "SPREADSHEETS",
    "first_line",
    "number",
    "numbered_lines",
    "read_text",
    "refuse_spreadsheet",
    "sayable",
    "sayable_name",
    "stem_of",
    "without_sound_suffix",
    "write_text",
]

SOUND_SUFFIXES = frozenset(
    {".aac", ".aif", ".aifc", ".aiff", ".au", ".caf", ".flac", ".m4a", ".mp3", ".mp4", ".oga", ".ogg", ".opus"}
    | {".snd", ".w64", ".wav", ".wave", ".wma"}
)
"""What a file of sound may end in: taken off to name the label file of a recording."""

SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
"""What a spreadsheet may end in: labels that people have, in files that are not read."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_TAIL = re.compile(r"(\.table\.\d+|\.birdnet)?\.selections?(\.table)?\.txt$|\.(txt|tsv|csv|jams|jsonl|json)$", re.I)


def read_text(path: Path) -> str:
    """All of a file's text, unzipped if need be; UTF-8, UTF-16 with a mark, or else Latin-1 with a warning.

    Line ends are as in the file.
    """
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
        raise DataError(f"{path}: holds binary data, not labels as text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        warnings.warn(
            f"{path}:{line}: not UTF-8; read as Latin-1. Save it as UTF-8 to be sure of accents", stacklevel=2
        )
        return data.decode("latin-1")


def refuse_spreadsheet(path: Path, mend: str = "") -> NoReturn:
    """Say what to do with a spreadsheet."""
    raise DataError(f"{path}: a spreadsheet is not read; save it as CSV{mend}")


def numbered_lines(text: str) -> list[tuple[int, str]]:
    r"""Lines that hold something, with their numbers, whatever they end in.

    >>> numbered_lines("a\r\n\r\nb\n")
    [(1, 'a'), (3, 'b')]
    """
    return [(number, line) for number, line in enumerate(_LINE_END.split(text), 1) if line.strip()]


def first_line(head: str) -> str:
    """The first line that holds something."""
    return next((line for line in _LINE_END.split(head) if line.strip()), "")


def write_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all, zipped if its name ends in .gz; its folder is made if need be."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        bad = text[error.start : error.end]
        raise DataError(f"{path}: {bad!r} cannot be written as UTF-8; rename the file or class it is in") from error
    make_folder(path.parent)
    with written_whole(path) as draft:
        draft.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def stem_of(path: Path) -> str:
    """The name of a label file without what says that it is one: the name of its recording.

    >>> stem_of(Path("night.Table.1.selections.txt")), stem_of(Path("x_30.000_40.000.txt.gz")), stem_of(Path("a"))
    ('night', 'x_30.000_40.000', 'a')
    """
    name = path.name.removesuffix(".gz")
    return _TAIL.sub("", name) or name


def without_sound_suffix(filename: str) -> str:
    """A recording's name without .wav or the like; other dots stay.

    >>> without_sound_suffix("a/x_30.000_40.000.WAV"), without_sound_suffix("x_30.000_40.000")
    ('a/x_30.000_40.000', 'x_30.000_40.000')
    """
    stem, dot, suffix = filename.rpartition(".")
    is_sound = f"{dot}{suffix}".lower() in SOUND_SUFFIXES and stem and not stem.endswith("/")
    return stem if is_sound else filename


def number(text: str, what: str) -> float | None:
    """A number, with a decimal point or comma; None where nothing is written.

    >>> number("1,5", "onset"), number("", "onset")
    (1.5, None)
    """
    text = text.strip()
    if not text:
        return None
    plain = text.replace(",", ".") if text.count(",") == 1 and "." not in text else text
    try:
        if "_" in plain:  # Python's 1_000
            raise ValueError
        return float(plain)
    except ValueError:
        mend = "; write seconds, as in 1.5" if ":" in text else ""
        raise DataError(f"{what} is not a number: {text!r}{mend}") from None


def sayable(text: str, format: str, forbidden: str = "\t\n\r") -> str:
    """The text, if a format can say it and read it back; else an error that says why not."""
    if text != text.strip():
        raise DataError(
            f"{text!r} begins or ends with white space, which {format} does not keep; rename it, or write json"
        )
    if any(char in text for char in forbidden + "\0"):
        raise DataError(f"{text!r} has a character in it that {format} cannot keep; rename it, or write json")
    return text


def sayable_name(text: str, format: str, forbidden: str = "\t\n\r") -> str:
    """The same for the name of a recording, in which a backslash would be read as a slash."""
    if "\\" in text:
        raise DataError(f"{text!r} has a backslash in it, which is read as the slash of a path; rename the file")
    return sayable(text, format, forbidden)
