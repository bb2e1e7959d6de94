"""Detection in any number of recordings, with a ledger: `run_job`.

Killed at any moment and started again, a job goes on where it was. A recording is done once its outputs are written
whole and the ledger says so; then it is not run again while its size and time, the model and the settings stay. Other
formats are written from the events in the ledger. Other thresholds are decided on kept scores where there are any
(`keep_scores`), else the recording is run again. A recording that cannot be read is a line with its reason and costs
nothing else; the next run tries it again. The events of a recording depend on it, the model and the decoder alone, not
on workers or interruptions. Nor on `span`, up to rounding where sound is resampled: the last bit of a probability.

How work is cut and who executes it is in `earmark.detection.spans`; what lies where, in `earmark.detection.outputs`.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from earmark.annotations import Label
from earmark.audio.containers import folder_trouble
from earmark.detection.detector import SoundDetector, load
from earmark.detection.ledger import DIED_TWICE, Entry, Ledger
from earmark.detection.outputs import (
    JobFolder,
    check_formats,
    find_recordings,
    reason_of,
    remove_recording,
    remove_unfinished,
    settle_names,
    write_failed,
    write_merged,
    write_presence,
    write_recording,
)
from earmark.detection.spans import SPAN, Executor, LocalExecutor, Plan, decode_scores, score_files
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.events import Decoder
from earmark.files import json_text, make_folder, written_whole
from earmark.inference.scores import RecordingScores, read_scores, repool, write_scores

__all__ = ["JobReport", "Progress", "run_job"]

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    hours: float
    """Of sound, heard in this run."""
    total_hours: float
    """Of sound, to be heard in this run: known for recordings that were begun, for others guessed from their size."""
    settled: int
    """Recordings that are done or failed, also in earlier runs."""
    files: int
    """Recordings in all."""


@dataclass(frozen=True)
class JobReport:
    """What a run of a job did."""

    out: str
    files: int
    """Recordings that were asked for."""
    done: int
    """Of these, run now."""
    redecided: int
    """Decided anew from kept scores, or written in other formats."""
    kept: int
    """Done already, and not touched."""
    failed: int
    """Not to be read: see failed.csv."""
    trouble: str | None
    """One of these, and why."""
    edited: int
    """Files that somebody has changed: kept under another name, with `.edited` in it."""
    events: int
    """In events.csv."""
    hours: float
    """Of sound, run now."""
    seconds: float
    """That it took."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def run_job(
    model: SoundDetector | AnyPath,
    files: Iterable[AnyPath],
    out: AnyPath,
    *,
    formats: Iterable[str] = ("tsv",),
    decoder: Decoder | None = None,
    workers: int | None = None,
    keep_scores: bool = False,
    presence: float | None = None,
    executor: Executor | None = None,
    span: float = SPAN,
    retry: bool = False,
    hook: Callable[[Progress], None] | None = None,
    command: str | None = None,
) -> JobReport:
    """Detect in recordings, and leave a folder as `earmark.detection.outputs` describes it.

    Parameters
    ----------
    model
        A detector, or what `load` takes.
    files
        Files of sound and folders of them.
    out
        Folder of the job: new, or left by an earlier run with the same model, which is then continued.
    formats
        For files per recording, by name.
    decoder
        How probabilities become events; by default the paper's 0.5.
    workers
        Threads; None is one per core.
    keep_scores
        Whether to keep frame probabilities, for other thresholds later.
    presence
        Seconds for which probabilities are pooled in presence.csv; infinity for whole recordings; None: no such file.
    executor
        What runs spans; by default threads of this process.
    span
        Seconds of sound, about, that are run at once.
    retry
        Whether to try again recordings during which the process died twice.
    hook
        Called whenever something is done.
    command
        For the record, what the user wrote.
    """
    detector = model if isinstance(model, SoundDetector) else load(model)
    decoder, names, folder = decoder or Decoder(), check_formats(formats), JobFolder(Path(out))
    decoder.stream(detector.scorer.hop, detector.classes, "check")  # settings per class must be for these classes
    _check_presence(detector, presence)
    found = find_recordings(files, folder.root)
    if not found:
        raise DataError("there are no files of sound in what was given")
    executor = executor or LocalExecutor(detector.scorer, workers)
    with _writing(folder), folder.opened(), Ledger(folder.ledger) as ledger:
        _check_model(folder, ledger, detector)
        job = _Job(folder, ledger, detector, decoder, names, keep_scores, presence, hook)
        job.write_about(command)
        return job.run(found, executor, span, retry)


@dataclass
class _Job:
    folder: JobFolder
    ledger: Ledger
    detector: SoundDetector
    decoder: Decoder
    formats: tuple[str, ...]
    keep_scores: bool
    presence: float | None
    hook: Callable[[Progress], None] | None
    tally: _Tally = field(default_factory=lambda: _Tally())
    has_changed: bool = False
    """Whether events are not what they were before."""

    def __post_init__(self) -> None:
        self.settings = json.dumps({"decoder": self.decoder.to_dict(), "presence": self.presence}, sort_keys=True)

    def write_about(self, command: str | None) -> None:
        model, scorer = self.detector.path, self.detector.scorer
        about = {
            "model": None if model is None else str(model.absolute()),
            "fingerprint": scorer.fingerprint,
            "classes": list(scorer.classes),
            "decoder": self.decoder.to_dict(),
            "formats": list(self.formats),
            "presence": "recording" if self.presence == math.inf else self.presence,  # JSON knows no infinity
            "keep_scores": self.keep_scores,
            "versions": {name: version(name) for name in ("earmark", "numpy", "soundfile", "soxr")},
            "command": command,
        }
        with written_whole(self.folder.about) as draft:
            draft.write_text(json_text(about, indent=1))

    def run(self, found: list[tuple[Path, Path]], executor: Executor, span: float, retry: bool) -> JobReport:
        started = time.monotonic()
        moves, named = settle_names(found, self.ledger, self.folder.root)
        self.ledger.move(moves.items())
        self.ledger.set_place(os.path.abspath(self.folder.root))
        asked = {path for path, _ in named}
        self._check_settings(asked)
        failed = [entry.path for entry in self.ledger.entries("failed") if entry.path not in asked]
        self.ledger.drop_failed(path for path in failed if _is_past(path))
        self.ledger.add(named)
        suspects = set(self.ledger.recover())
        if self.ledger.about().get("state") == "open":  # the last run did not end in good order
            remove_unfinished(self.folder, self.ledger)
        self.ledger.set_about({"state": "open"})
        self.tally.files = len(named)
        todo = [path for path, _ in named if self._is_to_run(path, retry)]
        alone = [
            [path] for path in todo if path in suspects
        ]  # if the process dies again, it is clear whose fault it is
        self._tell()
        try:
            for paths in (*alone, [path for path in todo if path not in suspects]):
                score_files(
                    paths,
                    self.detector.scorer,
                    executor,
                    handle=self._handle,
                    begin=self._begin,
                    planned=self._planned,
                    hear=self._hear,
                    span=span,
                )
        except KeyboardInterrupt:
            self.ledger.release()
            self._write_tables()
            self.ledger.set_about({"state": "closed"})
            raise
        except BaseException:
            with suppress(EarmarkError):  # the disk may be full
                self.ledger.release()
            raise
        events = self._write_tables()
        self.ledger.set_about({"state": "closed"})
        return self._report(events, time.monotonic() - started)

    def _check_settings(self, asked: set[Path]) -> None:
        """One table, one way to decide: recordings that are not asked for now must have been decided alike."""
        other = [e for e in self.ledger.entries("done") if e.path not in asked and e.settings != self.settings]
        if other:
            raise ArgumentError(
                f"{self.folder.root} holds {len(other)} other recordings, such as {other[0].name}, decided with other "
                "settings; name them too, or choose another folder"
            )

    def _is_to_run(self, path: Path, retry: bool) -> bool:
        """Whether a recording must be run; if not, it is done already, or done here from what was kept."""
        entry, status = self.ledger.entry(path), _status(path)
        is_same = status is not None and entry.is_unchanged(status)
        if entry.state == "done" and is_same and self._is_settled(entry):
            return False
        if entry.reason == DIED_TWICE:
            if is_same and not retry:
                self.tally.failed += 1
                return False
            self.ledger.forgive(path)
        self.tally.expect(path, 0 if status is None else status.st_size)
        return True

    def _is_settled(self, entry: Entry) -> bool:
        """Whether the recording, run before, is as wanted now or could be made so without running it."""
        has_scores = entry.scores and self.folder.scores(entry.name).exists()
        if self.keep_scores and not has_scores:
            return False
        if entry.settings == self.settings:
            missing = [f for f in self.formats if not self._is_written(entry, f)]
            if not missing:
                self.tally.kept += 1
                return True
            files = {self.folder.labels(entry.name, f): f for f in (*_formats_of(entry), *missing)}  # the latter win
            self._remove(entry, [f for f in _formats_of(entry) if f not in files.values()])
            self._write(entry, self.ledger.events(entry.path), entry.duration or 0.0, missing)
            self.ledger.set_formats(entry.path, ",".join(files.values()))
        elif not (has_scores and self._redecide(entry)):
            return False
        self.tally.redecided += 1
        self._tell()
        return True

    def _redecide(self, entry: Entry) -> bool:
        try:
            scores = read_scores(self.folder.scores(entry.name))
        except DataError:
            return False
        scorer = self.detector.scorer
        if (scores.fingerprint, scores.classes) != (scorer.fingerprint, scorer.classes):
            return False
        self._finish(entry, scores, entry.path.stat(), entry.seconds or 0.0, has_scores=True)
        return True

    def _begin(self, path: Path) -> None:
        status = _status(path)
        self.tally.begin(path, status)
        self.ledger.begin(path, status)

    def _planned(self, path: Path, plan: Plan) -> None:
        self.tally.know(path, plan.duration)
        self._tell()

    def _hear(self, path: Path, seconds: float) -> None:
        self.tally.heard += seconds
        self._tell()

    def _handle(self, path: Path, result: RecordingScores | Exception) -> None:
        began, status = self.tally.begun.pop(path)
        entry = self.ledger.entry(path)
        if not isinstance(result, Exception) and (status is None or not _is_same(status, _status(path))):
            result = DataError("changed while it was read; the next run tries it again")
        if isinstance(result, Exception) or status is None:
            self._fail(entry, result, status)
        else:
            kept = self.folder.scores(entry.name)
            if self.keep_scores:
                make_folder(kept.parent)
                write_scores(kept, result)
            else:
                kept.unlink(missing_ok=True)
            self._finish(entry, result, status, time.monotonic() - began, has_scores=self.keep_scores)
            self.tally.done += 1
        self._tell()

    def _finish(
        self, entry: Entry, scores: RecordingScores, status: os.stat_result, seconds: float, *, has_scores: bool
    ) -> None:
        """Outputs first, then the ledger: what it calls done is there."""
        events = decode_scores(scores, self.decoder, entry.name)
        self._remove(entry, _formats_of(entry), (events, scores.duration))  # as a run that died just here left them
        self._write(entry, events, scores.duration, self.formats)
        self.has_changed = True
        stretches = []
        if self.presence is not None:
            times, P = repool(scores, self.detector.pool, None if math.isinf(self.presence) else self.presence)
            stretches = [(float(on), float(off), row) for (on, off), row in zip(times, P, strict=True)]
        self.ledger.finish(
            entry.path,
            events,
            status=status,
            duration=scores.duration,
            seconds=seconds,
            settings=self.settings,
            formats=",".join(self.formats),
            scores=has_scores,
            presence=stretches,
        )

    def _fail(self, entry: Entry, error: object, status: os.stat_result | None) -> None:
        self._remove(entry, _formats_of(entry))
        self.has_changed = True
        self.folder.scores(entry.name).unlink(missing_ok=True)
        reason = reason_of(error, entry.path)
        self.ledger.fail(entry.path, reason, status)
        self.tally.failed += 1
        self.tally.trouble = self.tally.trouble or f"{entry.name}: {reason}"

    def _is_written(self, entry: Entry, format: str) -> bool:
        return format in _formats_of(entry) and self.folder.labels(entry.name, format).exists()

    def _write(self, entry: Entry, events: list[Label], duration: float, formats: Sequence[str]) -> None:
        classes = self.detector.classes
        write_recording(self.folder, entry.name, events, classes=classes, formats=formats, duration=duration)

    def _remove(self, entry: Entry, formats: Sequence[str], *more: tuple[list[Label], float]) -> None:
        """Take away files of an earlier run, but keep what somebody has worked on."""
        versions = [(self.ledger.events(entry.path), entry.duration or 0.0), *more]
        self.tally.edited += remove_recording(
            self.folder, entry.name, versions, classes=self.detector.classes, formats=formats
        )

    def _write_tables(self) -> int:
        if self.has_changed:
            self.folder.remove_views()
        if self.presence is not None:
            write_presence(self.folder, self.ledger, self.detector.classes)
        else:
            self.folder.presence.unlink(missing_ok=True)  # of an earlier run, and out of date
        write_failed(self.folder, self.ledger)
        return write_merged(self.folder, self.ledger)

    def _tell(self) -> None:
        if self.hook is not None:
            self.hook(self.tally.progress())

    def _report(self, events: int, seconds: float) -> JobReport:
        t = self.tally
        return JobReport(
            out=str(self.folder.root),
            files=t.files,
            done=t.done,
            redecided=t.redecided,
            kept=t.kept,
            failed=t.failed,
            trouble=t.trouble,
            edited=t.edited,
            events=events,
            hours=t.heard / 3600,
            seconds=seconds,
        )


@dataclass
class _Tally:
    """What was done so far, and how much is left."""

    files: int = 0
    done: int = 0
    redecided: int = 0
    kept: int = 0
    failed: int = 0
    trouble: str | None = None
    edited: int = 0
    heard: float = 0.0
    begun: dict[Path, tuple[float, os.stat_result | None]] = field(default_factory=dict)
    _sizes: dict[Path, int] = field(default_factory=dict)
    _bytes_left: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _known: dict[str, tuple[int, float]] = field(default_factory=lambda: defaultdict(lambda: (0, 0.0)))

    def expect(self, path: Path, size: int) -> None:
        """A recording of so many bytes is to be run."""
        self._sizes[path] = size
        self._bytes_left[path.suffix.lower()] += size

    def begin(self, path: Path, status: os.stat_result | None) -> None:
        """A recording is looked at: it is no longer guessed at."""
        self.begun[path] = time.monotonic(), status
        self._bytes_left[path.suffix.lower()] -= self._sizes[path]

    def know(self, path: Path, duration: float) -> None:
        """A recording's duration is known."""
        size, seconds = self._known[path.suffix.lower()]
        self._known[path.suffix.lower()] = size + self._sizes[path], seconds + duration

    def progress(self) -> Progress:
        """So far."""
        known_bytes, known = (
            (sum(column) for column in zip(*self._known.values(), strict=True)) if self._known else (0, 0.0)
        )
        guess = known / known_bytes if known_bytes else 0.0  # seconds per byte, for suffixes not yet met
        left = 0.0
        for suffix, size in self._bytes_left.items():
            own_bytes, own = self._known.get(suffix, (0, 0.0))
            left += size * (own / own_bytes if own_bytes else guess)
        settled = self.done + self.redecided + self.kept + self.failed
        return Progress(self.heard / 3600, (known + left) / 3600, settled, self.files)


def _check_presence(detector: SoundDetector, presence: float | None) -> None:
    if presence is None:
        return
    hop = detector.scorer.hop * detector.scorer.reduction
    if not presence >= hop:
        raise ArgumentError(f"presence must be at least the {hop:.3f} s between frames, found {presence} s")
    detector.pool.stream()  # an operator that cannot says so


def _check_model(folder: JobFolder, ledger: Ledger, detector: SoundDetector) -> None:
    """One folder, one model: remember whose it is, or refuse."""
    own = {"fingerprint": detector.scorer.fingerprint, "classes": json.dumps(detector.classes)}
    about = ledger.about()
    if about and any(about.get(key) != value for key, value in own.items()):
        raise ArgumentError(f"{folder.root} holds a job of another model ({about.get('model')}); choose another folder")
    ledger.set_about({**own, "model": str(detector.path)})


def _formats_of(entry: Entry) -> list[str]:
    return entry.formats.split(",") if entry.formats else []


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):  # reading it will say what is wrong
        return None


def _is_past(path: Path) -> bool:
    """Whether what failed is no longer there, such as sound that was converted, or is a folder that opens now."""
    return not os.path.lexists(path) or (os.path.isdir(path) and folder_trouble(path) is None)


def _is_same(before: os.stat_result, after: os.stat_result | None) -> bool:
    return after is not None and (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


@contextmanager
def _writing(folder: JobFolder) -> Iterator[None]:
    """A full disk, or one that may not be written to, is one line."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{folder.root}: cannot be written to: {error.strerror or error}; what is done is kept, and the same "
            "command goes on with the rest"
        ) from error
