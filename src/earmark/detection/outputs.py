"""The folder of a detection job: what lies where, and how recordings are called there.

    OUT/events.csv               events of all recordings: filename, onset, offset, label, confidence
    OUT/events/NAME.SUFFIX       events of one recording, in each format asked for
    OUT/presence.csv             probabilities of classes per stretch of time, where asked for
    OUT/failed.csv               recordings that could not be run, with the reason; absent if there are none
    OUT/scores/NAME.npz          frame probabilities, where they are kept
    OUT/ledger.sqlite            what became of every recording: `earmark.detection.ledger`
    OUT/job.json                 model, settings, versions

In events.csv a recording without events has one row with its name alone: it was listened to. `read_labels` reads it so.
Files of events, and both tables of them, are the job's own: one that somebody has changed is renamed, to NAME.edited.*,
before another takes its place.

A recording's NAME is its place below the folder that was given, or its bare name if it was given itself. What tables
cannot say (control characters, backslashes, bytes that are no UTF-8, white space at the ends) is written as %0A. Two
recordings never share a name: the second gets that of its folder in front. Everything is written whole or not at all.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from earmark.annotations import Label, LabelTable
from earmark.audio.containers import plain_name
from earmark.detection.inputs import digest_of, find_recordings, is_gone, status_of
from earmark.detection.ledger import Entry, Ledger
from earmark.errors import ArgumentError, EarmarkError
from earmark.files import locked, make_folder, remove_drafts, written_whole
from earmark.formats import FORMATS

__all__ = [
    "JobFolder",
    "check_formats",
    "choose_names",
    "find_moved",
    "growing_table",
    "job_recordings",
    "reason_of",
    "remove_recording",
    "remove_unfinished",
    "settle_names",
    "table_name",
    "write_failed",
    "write_merged",
    "write_presence",
    "write_recording",
]

_HEADING = ("filename", "onset", "offset", "label", "confidence")
_LONGEST = 180  # bytes of a file name, leaving room for suffixes and drafts below the 255 that file systems allow


@dataclass(frozen=True)
class JobFolder:
    """Where things lie in the folder of a job."""

    root: Path

    @property
    def merged(self) -> Path:
        """Events of all recordings."""
        return self.root / "events.csv"

    @property
    def presence(self) -> Path:
        """Probabilities per stretch of time."""
        return self.root / "presence.csv"

    @property
    def failed(self) -> Path:
        """What could not be run."""
        return self.root / "failed.csv"

    @property
    def ledger(self) -> Path:
        """What became of every recording."""
        return self.root / "ledger.sqlite"

    @property
    def about(self) -> Path:
        """What the job is."""
        return self.root / "job.json"

    @property
    def page(self) -> Path:
        """The report, where it was asked for."""
        return self.root / "report.html"

    def remove_views(self) -> None:
        """Take away the page and the figures of an earlier run, which show other events."""
        self.page.unlink(missing_ok=True)
        for path in sorted((self.root / "figures").rglob("*"), reverse=True):  # what is in a folder before the folder
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            else:
                path.unlink()

    def labels(self, name: str, format: str) -> Path:
        """Events of one recording in a format."""
        return self.root / "events" / (_short(name) + FORMATS[format].cls.suffix)

    def scores(self, name: str) -> Path:
        """Frame probabilities of one recording."""
        return self.root / "scores" / (_short(name) + ".npz")

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folder, and keep other jobs out of it; one that holds files of something else is refused."""
        make_folder(self.root)
        for path in (self.merged, self.presence, self.failed, self.about, self.root / "events", self.root / "scores"):
            if path.exists() and not self.ledger.exists():
                raise ArgumentError(
                    f"{self.root} holds {path.name}, and is no folder of a detection job; choose another"
                )
        busy = f"{self.root}: another process is running this job; wait, or choose another folder"
        with locked(self.root / ".lock", message=busy, wait=False):
            yield


def choose_names(found: Iterable[tuple[Path, Path]], taken: Mapping[Path, str]) -> list[tuple[Path, str]]:
    """Names for recordings (root, path), each other than all before and than those taken; known paths keep theirs.

    >>> choose_names([(Path("/a"), Path("/a/x.wav")), (Path("/b"), Path("/b/x.wav"))], {})
    [(PosixPath('/a/x.wav'), 'x.wav'), (PosixPath('/b/x.wav'), 'b/x.wav')]
    """
    used = set(taken.values())
    named = []
    for root, path in found:
        name = taken.get(path)
        if name is None:
            name = next(candidate for candidate in _candidates(root, path) if candidate not in used)
            used.add(name)
        named.append((path, name))
    return named


def find_moved(
    found: Iterable[tuple[Path, Path]], known: Sequence[Entry], *, was: str | None = None, now: str | None = None
) -> dict[Path, Path]:
    """Recordings (root, path) that the job knows by another path: path before to path now.

    Where the job's folder was moved or copied, and its recordings with it, these are the ones that lie beside it as
    they did before. Others are called like one whose file is gone, and have the same content. So a folder of recordings
    can be renamed, or copied together with its job, and nothing is searched or counted twice; and recordings of two
    recorders, which are called alike, are not mistaken for each other.

    Parameters
    ----------
    was, now
        Where the folder of the job was, and is.
    """
    found = list(found)
    asked, taken = {path for _, path in found}, {entry.path for entry in known}
    moves: dict[Path, Path] = {}
    if was is not None and now is not None and was != now:
        for before in taken - asked:
            path = _moved_along(before, was, now)
            if path is not None and path not in taken and os.path.lexists(path):
                moves[before] = path
    settled = {*taken, *moves.values()}
    lost = [e for e in known if e.path not in asked and e.path not in moves and is_gone(e.path)]
    unheard = {e.name: e.path for e in lost if e.digest is None}  # nothing is known of them but their names
    heard = defaultdict[tuple[str, int | None], list[Entry]](list)
    for entry in lost:
        if entry.digest is not None:
            heard[entry.path.name, entry.size].append(entry)
    for root, path in found:
        if path in settled:
            continue
        status = status_of(path)
        like = heard.get((path.name, status.st_size), []) if status else []
        digest = digest_of(path) if like else None
        same = [entry for entry in like if entry.digest == digest]
        if same:
            nearest = max(same, key=lambda entry: _common_end(entry.path, path))
            like.remove(nearest)
            moves[nearest.path] = path
        elif before_it := unheard.pop(next(_candidates(root, path)), None):
            moves[before_it] = path
    return moves


def settle_names(
    found: Iterable[tuple[Path, Path]], ledger: Ledger, out: Path
) -> tuple[dict[Path, Path], list[tuple[Path, str]]]:
    """What a job makes of recordings (root, path): those that have moved, as `find_moved`, and all with their names."""
    found, known, now = list(found), list(ledger.entries()), os.path.abspath(out)
    moves = find_moved(found, known, was=ledger.place(), now=now)
    return moves, choose_names(found, {moves.get(entry.path, entry.path): entry.name for entry in known})


def job_recordings(inputs: Iterable[str | os.PathLike[str]], out: Path) -> dict[str, Path]:
    """Recordings by name that the job in a folder will have once it has run over these too; nothing is written."""
    found, ledger = find_recordings(inputs, out), JobFolder(out).ledger
    if not ledger.exists():
        return {name: path for path, name in choose_names(found, {})}
    with Ledger(ledger, read_only=True) as opened:
        moves, named = settle_names(found, opened, out)
        there = [entry for entry in opened.entries() if entry.state != "gone" and entry.path not in moves]
        known = {entry.name: entry.path for entry in there}
    return known | {name: path for path, name in named}


def table_name(name: str) -> str:
    r"""A name as tables and output files have it: anything that they cannot say as %0A.

    >>> table_name("night 1/a\nb.wav"), table_name("caf\udce9.wav"), table_name(" a.wav")
    ('night 1/a%0Ab.wav', 'caf%E9.wav', '%20a.wav')
    """
    return "/".join(_plain_part(part) for part in name.split("/"))


def reason_of(error: object, path: Path) -> str:
    """What is wrong with a recording, on one line and without its path, which is said elsewhere.

    >>> reason_of(OSError("no\\nspace"), Path("a.wav"))
    'OSError: no space'
    """
    said = str(error).removeprefix(f"{plain_name(path)}: ")
    return " ".join((said if isinstance(error, EarmarkError) else f"{type(error).__name__}: {said}").split())


def check_formats(names: Iterable[str]) -> tuple[str, ...]:
    """Names of formats, each known, each once; no two whose files would be called the same."""
    chosen = tuple(dict.fromkeys(names))
    suffixes: dict[str, str] = {}
    for name in chosen:
        suffix = FORMATS[name].cls.suffix
        if suffix in suffixes:
            raise ArgumentError(f"formats {suffixes[suffix]} and {name} both write {suffix}; choose one of them")
        suffixes[suffix] = name
    if not chosen:
        raise ArgumentError("no format is given")
    return chosen


def write_recording(
    folder: JobFolder,
    name: str,
    events: Sequence[Label],
    *,
    classes: Sequence[str],
    formats: Sequence[str],
    duration: float,
) -> None:
    """Write the events of one recording in each format."""
    table = LabelTable(events, filenames=[name], classes=classes)
    for format in formats:
        entry = FORMATS[format]
        options = {"duration": duration} if "duration" in entry.options() else {}
        entry.cls(**options).write(table, folder.labels(name, format))


def remove_recording(
    folder: JobFolder,
    name: str,
    versions: Iterable[tuple[Sequence[Label], float]],
    *,
    classes: Sequence[str],
    formats: Sequence[str],
) -> int:
    """Take away the files of a recording, if they are as `write_recording` left them.

    One that somebody has changed since is renamed instead: `night.wav.txt` to `night.wav.edited.txt`.

    Parameters
    ----------
    versions
        Events and duration that may have been written.

    Returns
    -------
    How many were renamed.
    """
    there = {format: folder.labels(name, format) for format in formats if folder.labels(name, format).exists()}
    if not there:
        return 0
    edited = set(there)
    with TemporaryDirectory() as place:
        again = JobFolder(Path(place))
        for events, duration in versions:
            write_recording(again, name, events, classes=classes, formats=list(there), duration=duration)
            edited -= {f for f, path in there.items() if path.read_bytes() == again.labels(name, f).read_bytes()}
    for format, path in there.items():
        if format in edited:
            path.rename(_free(path, FORMATS[format].cls.suffix))
        else:
            path.unlink()
    return len(edited)


def _free(path: Path, suffix: str) -> Path:
    """A name for what somebody has changed, that is not taken."""
    stem = path.name.removesuffix(suffix)
    names = (f"{stem}.edited{'' if n == 1 else n}{suffix}" for n in count(1))
    return next(own for own in map(path.with_name, names) if not own.exists())


def remove_unfinished(folder: JobFolder, ledger: Ledger) -> None:
    """Take away what a process that died had not finished writing, and nobody else's hidden files."""
    files = [folder.merged, folder.presence, folder.failed, folder.about, folder.page]
    for entry in ledger.entries():
        files += [folder.scores(entry.name), *(folder.labels(entry.name, format.name) for format in FORMATS)]
    remove_drafts(files)


def write_merged(folder: JobFolder, ledger: Ledger) -> tuple[int, int]:
    """Write events.csv from the ledger, in one pass.

    Returns
    -------
    How many events it has, and how many files were renamed: one if somebody had changed it.
    """
    total = 0

    def lines() -> Iterator[Sequence[object]]:
        nonlocal total
        for name, event in ledger.all_events():
            total += event is not None
            yield [name, "", "", "", ""] if event is None else _cells(event)

    renamed = _replace_table(folder.merged, ledger, _HEADING, lines())
    return total, renamed


@contextmanager
def growing_table(path: Path) -> Iterator[Callable[[Label], None]]:
    """A new table as events.csv, to which events are added one by one; each is in the file as soon as it is added.

    It is not written whole or not at all: whatever ends the process, the events until then are there.
    """
    try:
        file = path.open("x", newline="", encoding="utf-8")
    except FileExistsError as error:
        raise ArgumentError(f"{path.parent} holds {path.name} already; choose another folder") from error
    with file:
        writer = csv.writer(file, lineterminator="\n")

        def add(row: Sequence[object]) -> None:
            writer.writerow(row)
            file.flush()

        add(_HEADING)
        yield lambda event: add(_cells(event))


def write_presence(folder: JobFolder, ledger: Ledger, classes: Sequence[str]) -> tuple[int, int]:
    """Write presence.csv from the ledger, in one pass: filename, onset, offset, and a probability per class.

    Returns
    -------
    How many recordings it has, and how many files were renamed: one if somebody had changed it.
    """
    names = set()

    def lines() -> Iterator[Sequence[object]]:
        for name, onset, offset, P in ledger.all_presence():
            names.add(name)
            yield [name, onset, offset, *(f"{p:.6f}" for p in P.tolist())]

    renamed = _replace_table(folder.presence, ledger, ["filename", "onset", "offset", *classes], lines())
    return len(names), renamed


def write_failed(folder: JobFolder, ledger: Ledger) -> None:
    """Write failed.csv from the ledger: filename, reason; none if nothing failed."""
    if ledger.counts()["failed"]:
        _write_table(folder.failed, ["filename", "reason"], ([e.name, e.reason] for e in ledger.entries("failed")))
    else:
        folder.failed.unlink(missing_ok=True)


def _cells(event: Label) -> list[object]:
    confidence = "" if event.confidence is None else float(event.confidence)
    return [event.filename, event.onset, event.offset, event.label, confidence]


def _write_table(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with written_whole(path) as draft:
        _fill_table(draft, heading, lines)


def _replace_table(path: Path, ledger: Ledger, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> int:
    """Write a table, whose digest the ledger keeps; one that is not as it was left is renamed: how many."""
    key = f"digest of {path.name}"
    with written_whole(path) as draft:
        _fill_table(draft, heading, lines)
        own: list[str] = json.loads(ledger.about().get(key, "[]"))
        there, now = _digest(path) if path.exists() else None, _digest(draft)
        is_edited = there not in (None, now, *own)
        if is_edited:
            path.rename(_free(path, path.suffix))
        ledger.set_about({key: json.dumps([now, *own[:1]])})  # killed right here, it still knows the one before
    return int(is_edited)


def _fill_table(path: Path, heading: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(lines)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _common_end(a: Path, b: Path) -> int:
    """How many parts two paths have in common at their end."""
    pairs = zip(reversed(a.parts), reversed(b.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _moved_along(path: Path, was: str, now: str) -> Path | None:
    """Where a file lies if it went where the job's folder went."""
    with suppress(ValueError):  # on another drive
        return Path(os.path.normpath(os.path.join(now, os.path.relpath(path, was))))
    return None


def _candidates(root: Path, path: Path) -> Iterator[str]:
    """What a recording could be called, best first."""
    below, folder = path.relative_to(root).as_posix(), root.name or "root"
    yield table_name(below)
    yield table_name(f"{folder}/{below}")
    number = 2
    while True:
        yield table_name(f"{folder}-{number}/{below}")
        number += 1


def _plain_part(part: str) -> str:
    core = part.strip()
    start = part.index(core) if core else len(part)
    ends = {*range(start), *range(start + len(core), len(part))}
    return "".join(
        "".join(f"%{byte:02X}" for byte in os.fsencode(char))
        if i in ends or char == "\\" or unicodedata.category(char) in ("Cc", "Cs")
        else char
        for i, char in enumerate(part)
    )


def _short(name: str) -> str:
    """The name, with parts that are too long for a file system cut and told apart by a digest."""
    return "/".join(_short_part(part) for part in name.split("/"))


def _short_part(part: str) -> str:
    raw = part.encode()
    if len(raw) <= _LONGEST:
        return part
    return f"{raw[: _LONGEST - 17].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()[:16]}"
