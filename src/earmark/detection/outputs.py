"""The folder of a detection job and its files.

    OUT/events.csv               events of all recordings: filename, onset, offset, label, confidence; also date and
                                 time_of_day, if start times are known
    OUT/events/NAME.SUFFIX       events of one recording, in each format
    OUT/presence.csv             probabilities of classes per interval, if requested
    OUT/failed.csv               recordings that could not be read, with the reason; absent if there are none
    OUT/damaged.csv              gaps in the sound of recordings that are done; absent if there are none
    OUT/scores/NAME.npz          frame probabilities, if kept
    OUT/figures, OUT/report.html figures and the report, if requested
    OUT/ledger.sqlite            state of every recording: `earmark.detection.ledger`
    OUT/job.json                 model, settings, versions

In events.csv a recording without events has one row with only its name, as `read_labels` expects. Names that look
like formulas to a spreadsheet are protected (`earmark.formats.spreadsheets`).

The job replaces and deletes only what it wrote itself: the ledger has the SHA-256 of each of its files. A file in the
way that the user edited or created is renamed to NAME.edited.SUFFIX. Files are written completely or not at all.
`earmark.detection.inputs` explains NAME.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path

from earmark.annotations import Label, clock_cells
from earmark.detection.inputs import choose_names, find_recordings
from earmark.detection.ledger import Entry, Ledger
from earmark.errors import ArgumentError, DataError
from earmark.files import locked, make_folder, named_errors, remove_drafts, written_whole
from earmark.formats import FORMATS
from earmark.formats.columns import CLOCK_COLUMNS
from earmark.formats.spreadsheets import write_rows
from earmark.ownership import Owner, owned, set_aside, sha256
from earmark.text import as_names

EVENT_COLUMNS = ("filename", "onset", "offset", "label", "confidence")
_LONGEST = 180  # bytes of a file name; leaves room for suffixes and temporary names below the usual limit of 255


class JobFolder:
    """Paths in the folder of a job."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.merged = root / "events.csv"
        self.presence = root / "presence.csv"
        self.failed = root / "failed.csv"
        self.damaged = root / "damaged.csv"
        self.ledger = root / "ledger.sqlite"
        self.about = root / "job.json"

    def read_ledger(self) -> Ledger:
        """The ledger, for reading; a context manager."""
        return Ledger(self.ledger, read_only=True)

    def labels(self, name: str, format: str) -> Path:
        """Events of one recording in a format."""
        return self.root / "events" / (_short(name) + FORMATS[format].cls.suffix)

    def scores(self, name: str) -> Path:
        """Frame probabilities of one recording."""
        return self.root / "scores" / (_short(name) + ".npz")

    def files_of(self, name: str) -> set[Path]:
        """All files that a recording may have."""
        return {self.scores(name), *(self.labels(name, format.name) for format in FORMATS)}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Create and lock the folder; one that holds files of something else is rejected."""
        make_folder(self.root)
        tables = (self.merged, self.presence, self.failed, self.damaged, self.about)
        for path in (*tables, self.root / "events", self.root / "scores"):
            if os.path.lexists(path) and not self.ledger.exists():
                raise ArgumentError(
                    f"{self.root} contains {path.name}, and is not the folder of a detection job; choose another"
                )
        with locked(self.root):
            yield


class OutputFiles:
    """Writes and deletes only the files of a job: the ledger is the manifest of `earmark.ownership`."""

    def __init__(self, folder: JobFolder, ledger: Ledger, *, safe_csv: bool = True) -> None:
        self.folder = folder
        self.root = folder.root
        self.ledger = ledger
        self.safe_csv = safe_csv
        self.owner = Owner(folder.root, _Recorded(ledger))
        self.edited = 0  # files that were renamed because the user had edited or created them
        self.outdated: list[str] = []  # figures and reports that were deleted, since they showed other events

    @contextmanager
    def writing(
        self, files: Mapping[Path, str], *, recording: Path | None = None, new_events: bool = False
    ) -> Iterator[dict[Path, Path]]:
        """Temporary paths that replace files when the block ends without an error.

        Their hashes are in the ledger before they replace anything, so that after a kill at any moment neither the old
        nor the new file is taken for the user's. `files` are the kinds of files by path: a format, "scores",
        "table" or "view"; see `Ledger.record_outputs` for the others.
        """
        with ExitStack() as stack:
            drafts = {}
            for path in files:
                self.owner.check_links(path.parent)
                make_folder(path.parent)
                drafts[path] = stack.enter_context(written_whole(path, admit=lambda path, draft: None))
            yield drafts
            new = {path: sha256(draft) for path, draft in drafts.items()}
            hashes = {path: self.make_way(path, new[path]) for path in files}
            rows = [(self.owner.key(path), kind, hashes[path]) for path, kind in files.items()]
            self.ledger.record_outputs(rows, recording=recording, new_events=new_events)
        replaced = [(self.owner.key(path), kind, {new[path]}) for path, kind in files.items() if len(hashes[path]) > 1]
        if replaced:
            self.ledger.record_outputs(replaced, recording=recording)

    def write_table(
        self, path: Path, heading: Sequence[str], rows: Iterable[Sequence[object]], *, is_viewed: bool = False
    ) -> None:
        """Write a table. If figures and reports show its content (`is_viewed`), they are deleted when it changes."""
        with self.writing({path: "table"}) as drafts:
            with drafts[path].open("w", newline="", encoding="utf-8") as file:
                write_rows(file, chain([heading], rows), safe=self.safe_csv)
            if is_viewed and sha256(drafts[path]) != sha256(path):
                self.remove_views()

    def remove(self, path: Path) -> bool:
        """Delete a file that the job wrote, or rename it if the user edited it; returns whether there was one."""
        if not self.ledger.hashes(self.owner.key(path)) or self.owner.has_link(path) or not os.path.lexists(path):
            return False
        if self.owner.remove(path):
            while (path := path.parent) != self.root and not any(path.iterdir()):
                path.rmdir()
        else:
            self._set_aside(path)
        return True

    def remove_outputs(self, entry: Entry, keep: Collection[Path] = ()) -> None:
        """Delete the files of a recording that the job wrote, except some."""
        removable = self.folder.files_of(entry.name).difference(keep)
        for path in (self.root / key for key in self.ledger.outputs(entry)):
            self.owner.key(path)  # rejects what is not below the folder
            if path in removable:  # a damaged ledger may name others
                self.remove(path)

    def remove_views(self) -> None:
        """Delete figures and reports that the job wrote, since they show other events."""
        for key in self.ledger.views():
            is_view = key == "report.html" or key.startswith("figures/")  # a damaged ledger may name others
            edited = self.edited
            if is_view and self.remove(self.root / key) and self.edited == edited:
                self.outdated.append(key)

    def remove_unfinished(self) -> None:
        """Delete temporary files of a process that was killed."""
        folder = self.folder
        files = [folder.merged, folder.presence, folder.failed, folder.damaged, folder.about, self.root / "report.html"]
        for entry in self.ledger.entries(with_missing=True):
            files += folder.files_of(entry.name)
        remove_drafts(files)

    def make_way(self, path: Path, new: str) -> set[str]:
        """Rename a file that would be replaced if it is not the job's; hashes that the job's may have from now on."""
        current = sha256(path)
        if current and current in {new, *self.ledger.hashes(self.owner.key(path))}:
            return {current, new}
        if os.path.lexists(path):
            self._set_aside(path)
        return {new}

    def _set_aside(self, path: Path) -> None:
        """Rename a file that is not the job's; the suffixes of formats stay whole."""
        suffixes = sorted((format.cls.suffix for format in FORMATS), key=len, reverse=True)
        set_aside(path, next((suffix for suffix in suffixes if path.name.endswith(suffix)), ""))
        self.ledger.forget_output(self.owner.key(path))
        self.edited += 1


class _Recorded:
    """The ledger as a manifest; what is recorded through it are figures and reports."""

    def __init__(self, ledger: Ledger) -> None:
        self.hashes = ledger.hashes
        self._ledger = ledger

    def record_hashes(self, key: str, hashes: set[str]) -> None:
        if hashes:
            self._ledger.record_outputs([(key, "view", hashes)])
        else:
            self._ledger.forget_output(key)


@contextmanager
def disk_errors(root: Path) -> Iterator[None]:
    """Report in one line that the disk of a job's folder is full or read-only."""
    try:
        yield
    except OSError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # raised while something was being cleaned up
            raise KeyboardInterrupt from error
        problem = (error.strerror or str(error)).removeprefix("cannot be written: ")
        raise DataError(
            f"{error.filename or root}: cannot be written: {problem}; finished recordings are kept; run the "
            "same command again to continue"
        ) from error


@contextmanager
def writing_views(root: Path, paths: Sequence[Path]) -> Iterator[None]:
    """Write figures and reports of a job within this block: edited ones are set aside, new ones recorded."""
    folder = JobFolder(root)
    with Ledger(folder.ledger) as ledger:
        files = OutputFiles(folder, ledger)
        for path in paths:
            files.make_way(path, "")
        with owned(root, record=_Recorded(ledger)):
            yield


def job_recordings(inputs: Iterable[str | os.PathLike[str]], out: Path) -> dict[str, Path]:
    """Recordings by name that a job will have once it has run over these inputs too; nothing is written."""
    entries: list[Entry] = []
    if JobFolder(out).ledger.exists():
        with JobFolder(out).read_ledger() as ledger:
            entries = list(ledger.entries(with_missing=True))
    named = choose_names(find_recordings(inputs, out), {entry.path: entry.name for entry in entries})
    return {entry.name: entry.path for entry in entries if not entry.missing} | {name: path for path, name in named}


def check_formats(names: Iterable[str]) -> tuple[str, ...]:
    """Names of formats, each once; raises an error for unknown ones, and if two would write the same file."""
    chosen = tuple(dict.fromkeys(as_names(names)))
    suffixes: dict[str, str] = {}
    for name in chosen:
        suffix = FORMATS[name].cls.suffix
        if suffix in suffixes:
            raise ArgumentError(f"formats {suffixes[suffix]} and {name} both write {suffix}; choose one of them")
        suffixes[suffix] = name
    if not chosen:
        raise ArgumentError("no format is given")
    return chosen


@contextmanager
def growing_table(path: Path, *, safe: bool = True) -> Iterator[Callable[[Label], None]]:
    """A new table like events.csv, to which events are added one by one; each is on disk as soon as it is added."""
    try:
        file = path.open("x", newline="", encoding="utf-8")
    except FileExistsError as error:
        raise ArgumentError(f"{path.parent} contains {path.name} already; choose another folder") from error
    with named_errors(path), file:

        def add(row: Sequence[object]) -> None:
            write_rows(file, [row], safe=safe)
            file.flush()

        add(EVENT_COLUMNS)
        yield lambda event: add(event_cells(event))


def event_cells(event: Label) -> list[object]:
    """A row of events.csv, without date and time of day."""
    confidence = "" if event.confidence is None else float(event.confidence)
    return [event.filename, event.onset, event.offset, event.label, confidence]


Rows = Iterator[Sequence[object]]


def event_table(ledger: Ledger) -> tuple[Sequence[str], Rows]:
    """Heading and rows of events.csv: recordings that are done, one without events with only its name."""
    began = _starts(ledger)
    clock = CLOCK_COLUMNS if began else ()
    heading = (*EVENT_COLUMNS, *clock)

    def rows() -> Rows:
        for name, event in ledger.all_events():
            if event is None:
                yield name, *[""] * (len(heading) - 1)
            else:
                yield *event_cells(event), *(clock_cells(began.get(name), event.onset) if clock else ())

    return heading, rows()


def presence_table(ledger: Ledger, horizon: float, classes: Sequence[str]) -> tuple[Sequence[str], Rows]:
    """Heading and rows of presence.csv: a row per interval."""
    began = _starts(ledger)
    clock = CLOCK_COLUMNS if began else ()

    def rows() -> Rows:
        for name, intervals in ledger.all_presence(horizon):
            for onset, offset, *P in intervals.reshape(-1, 2 + len(classes)).tolist():
                cells = (name, round(onset, 3), round(offset, 3), *(f"{p:.6f}" for p in P))
                yield *cells, *(clock_cells(began.get(name), onset) if clock else ())

    return ("filename", "onset", "offset", *classes, *clock), rows()


def _starts(ledger: Ledger) -> dict[str, datetime]:
    """Start times of recordings, by name, where known."""
    return {entry.name: entry.began for entry in ledger.entries() if entry.began is not None}


def _short(name: str) -> str:
    """The name; parts that are too long for a file system are cut and made unique by a digest."""
    parts = name.split("/")
    for i, raw in enumerate(part.encode() for part in parts):
        if len(raw) > _LONGEST:
            parts[i] = f"{raw[: _LONGEST - 17].decode(errors='ignore')}~{hashlib.sha256(raw).hexdigest()[:16]}"
    return "/".join(parts)
