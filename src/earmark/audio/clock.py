"""When a recording began, from its file name or from what the recorder wrote into the file.

Field recorders put date and time into file names (`20260514_221500.WAV`). AudioMoth and others also write them into the
wav file: as GUANO metadata (chunk `guan`, https://guano-md.org), or as a comment (chunk `LIST`, AudioMoth).
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import IO

from earmark.audio.containers import riff_chunks

TIME_STAMP = re.compile(
    r"(?<![0-9])(?P<year>(?:19|20)[0-9]{2})(?P<dash>-?)(?P<month>[0-9]{2})(?P=dash)(?P<day>[0-9]{2})"
    r"[-_T$ ](?P<hour>[0-9]{2})(?P<colon>[-:_]?)(?P<minute>[0-9]{2})(?P=colon)(?P<second>[0-9]{2})(?![0-9])"
)
"""Date and time in the name of a recording, as field recorders write them."""

_COMMENT = re.compile(
    r"Recorded at (?P<clock>\d\d:\d\d:\d\d(?:\.\d{3})?) (?P<date>\d\d/\d\d/\d{4})"
    r"(?: \((?P<zone>UTC(?:(?P<sign>[+-])(?P<hours>\d{1,2})(?::(?P<minutes>\d\d))?)?)\))?"
)
_GUANO = re.compile(r"^\s*Timestamp\s*:\s*(\S+)\s*$", re.MULTILINE | re.IGNORECASE)
_MOST_CHUNKS = 100
_LONGEST_CHUNK = 1 << 16  # bytes of text


def recording_start(path: Path) -> datetime | None:
    """When a recording began: by its name, else by its metadata; with a time zone where the metadata have one."""
    began = recorded_at(path.name)
    if began is not None or path.suffix.lower() not in (".wav", ".wave"):
        return began
    try:
        with path.open("rb") as file:
            return next((began for text in _texts(file) if (began := _parsed(text))), None)
    except (OSError, ValueError):  # reading the audio reports what is wrong
        return None


def recorded_at(name: str) -> datetime | None:
    """When a recording began, from the date and time in its file name; None if there is none.

    Field recorders write date and time next to each other. Impossible dates and dates without a time are ignored, and
    so are the names of folders. Of two times, a beginning and an end, the first counts.

    >>> print(recorded_at("plot 3/20260514_221500.WAV"), recorded_at("SM4-07_20260514_221500.wav"))
    2026-05-14 22:15:00 2026-05-14 22:15:00
    >>> print(recorded_at("2026-05-14T22-15-00.flac"), recorded_at("20261399_221500.wav"), recorded_at("10032-3-0.wav"))
    2026-05-14 22:15:00 None None
    """
    for match in TIME_STAMP.finditer(re.split(r"[/\\]", name)[-1]):
        try:
            digits = "".join(match.group("year", "month", "day", "hour", "minute", "second"))
            return datetime.strptime(digits, "%Y%m%d%H%M%S")
        except ValueError:  # 31 April, hour 25
            continue
    return None


def _texts(file: IO[bytes]) -> Iterator[str]:
    """Texts of the chunks of a wav file that may say when it was recorded."""
    head = file.read(12)
    if head[:4] not in (b"RIFF", b"RF64") or head[8:] != b"WAVE":
        return
    for name, size, _ in islice(riff_chunks(file), _MOST_CHUNKS):
        if name in (b"guan", b"LIST"):
            yield file.read(min(size, _LONGEST_CHUNK)).decode("utf-8", "replace").replace("\0", "\n")


def _parsed(text: str) -> datetime | None:
    """Date and time in GUANO metadata, or in AudioMoth's comment.

    >>> print(_parsed("GUANO|Version:1.0\\nTimestamp:2026-05-14T22:15:00+02:00\\n"))
    2026-05-14 22:15:00+02:00
    >>> print(_parsed("Recorded at 22:15:00 14/05/2026 (UTC+2) by AudioMoth 0123456789ABCDEF at gain setting 2"))
    2026-05-14 22:15:00+02:00
    """
    if guano := _GUANO.search(text):
        try:
            return datetime.fromisoformat(guano[1])
        except ValueError:
            return None
    comment = _COMMENT.search(text)
    if comment is None:
        return None
    try:
        layout = "%H:%M:%S.%f %d/%m/%Y" if "." in comment["clock"] else "%H:%M:%S %d/%m/%Y"
        moment = datetime.strptime(f"{comment['clock']} {comment['date']}", layout)
        if comment["zone"] is None:
            return moment
        east = timedelta(hours=int(comment["hours"] or 0), minutes=int(comment["minutes"] or 0))
        return moment.replace(tzinfo=timezone(-east if comment["sign"] == "-" else east))
    except ValueError:  # 31 April, a zone of 30 hours
        return None
