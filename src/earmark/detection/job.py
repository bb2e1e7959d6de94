"""Detection in any number of recordings, with a ledger: `run_job`.

A job that was killed continues when it is started again. A recording is done once its files are written and the ledger
records it. It is not scored again while its size, its modification time and the model stay the same:

- Other formats are written from the events in the ledger.
- With another decoder, stored scores (`keep_scores`) are decoded again. Without them, the recording is scored again.
- A recording that cannot be read is listed with the reason, and retried by the next run.
- A recording that was being read when the process died is read last, in a separate process with limited memory and
  time, so that it does not affect the others.

events.csv only has events of one decoder. It leaves a recording out until it is done with the current one. Events do
not depend on workers or interruptions. `earmark.detection.outputs` describes the files.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from earmark.annotations import Label, LabelTable
from earmark.audio import AnyPath, check_damaged
from earmark.audio.clock import recording_start
from earmark.detection.detector import SoundDetector, load
from earmark.detection.inputs import check_exists, choose_names, find_missing, find_recordings, reason_of, status_of
from earmark.detection.ledger import Entry, Ledger
from earmark.detection.outputs import (
    JobFolder,
    OutputFiles,
    check_formats,
    disk_errors,
    event_table,
    presence_table,
)
from earmark.detection.spans import SPAN, Executor, LocalExecutor, isolated, score_files
from earmark.errors import ArgumentError, DataError, EarmarkError, WorkerError
from earmark.events import Decoder, decode_scores
from earmark.files import as_paths, json_text, path_text
from earmark.formats import FORMATS
from earmark.inference.scores import RecordingScores, read_scores, repool, write_scores
from earmark.ownership import other_files_note
from earmark.progress import OnNote, OnProgress, Progress, ignore_note, ignore_progress
from earmark.text import counted, first_few, plural

__all__ = ["JobOptions", "JobReport", "run_job"]


@dataclass(frozen=True)
class JobOptions:
    """Options of a job."""

    formats: Sequence[str] = ("tsv",)  # names of the formats of files per recording
    decoder: Decoder | None = None  # how probabilities become events; the model's own by default
    keep_scores: bool = False  # whether to keep frame probabilities, so that other thresholds do not need another run
    presence: float | None = None
    """Seconds over which probabilities are pooled for presence.csv; infinity for whole recordings. With None an
    existing file stays, with the recordings for which it is still valid."""
    span: float = SPAN  # seconds of audio, roughly, that are scored at once
    safe_csv: bool = True  # whether names that a spreadsheet would run as formulas are protected by an apostrophe
    damaged: str = "refuse"  # or "keep": recordings with gaps are done, with silence in the gaps
    command: str | None = None  # the command line, for job.json


@dataclass
class JobReport:
    """Results of one run of a job."""

    out: str
    files: int = 0  # recordings that were given
    done: int = 0  # of these, scored in this run
    redecoded: int = 0  # of these, decoded again from kept scores, or written in other formats
    kept: int = 0  # of these, done before and not touched
    replaced: int = 0  # recordings whose events of an earlier run with other settings were replaced
    failed: int = 0  # of these, not readable: see failed.csv
    first_failure: str | None = None  # one of these, with the reason
    damaged: int = 0  # recordings that are done although audio is missing: see damaged.csv
    missing: int = 0  # recordings of earlier runs that were removed since: left out of the tables
    pending: int = 0  # recordings of earlier runs that are not done yet: not in the tables
    edited: int = 0  # files that the user edited or added: kept under another name, with `.edited` in it
    outdated: list[str] = field(default_factory=list)  # figures and reports deleted, since they showed other events
    events: int = 0  # events in events.csv
    presence: int | None = None  # recordings in presence.csv; None if there is no such file
    hours: float = 0.0  # hours of audio scored in this run
    seconds: float = 0.0  # duration of this run

    @property
    def is_complete(self) -> bool:
        """Whether every recording of the job is done."""
        return not self.failed and not self.pending

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def __str__(self) -> str:
        out, done = Path(self.out), self.done + self.redecoded + self.kept
        before = f", {self.kept} of them earlier" if self.kept else ""
        again = f", {self.redecoded} from stored results" if self.redecoded else ""
        events = f"{counted(self.events, 'event')} in {out / 'events.csv'}"
        lines = [f"{done} of {self.files} recordings done{before}{again}; {events}"]
        if self.hours and self.seconds:
            speed = 3600 * self.hours / self.seconds
            lines.append(f"{self.hours:.2f} hours of sound in {self.seconds:.1f} s: {speed:.0f} times real time")
        if self.presence is not None:
            lines.append(f"probabilities of {counted(self.presence, 'recording')} in {out / 'presence.csv'}")
        if self.failed:
            # if all failed, the command line says why in an error
            example = f", such as {self.first_failure}" if self.first_failure and self.failed < self.files else ""
            lines.append(f"{self.failed} failed: {out / 'failed.csv'} has the reasons{example}")
        for n, noun, what in (
            (self.replaced, "recording", "detected earlier with other settings: events replaced"),
            (self.damaged, "recording", f"with missing sound: {out / 'damaged.csv'} says where"),
            (self.missing, "recording", "no longer found: omitted from events.csv; their files in events are kept"),
            (self.pending, "recording", "of earlier runs pending: not in events.csv yet"),
            (self.edited, "file", "edited or added by you: renamed with .edited in the name"),
        ):
            if n:
                lines.append(f"{counted(n, noun)} {what}")
        if self.outdated:
            names, were = first_few(self.outdated), plural(len(self.outdated), "was", "were")
            lines.append(f"{names} showed other events and {were} deleted; --report and --figure write them again")
        return "\n".join(lines)


def run_job(
    model: SoundDetector | AnyPath,
    files: AnyPath | Iterable[AnyPath],
    out: AnyPath,
    options: JobOptions | None = None,
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    on_progress: OnProgress = ignore_progress,
    on_note: OnNote = ignore_note,
) -> JobReport:
    """Detect events in audio files and folders, and write a folder as `earmark.detection.outputs` describes it.

    `model` is a detector, or what `load` accepts; `out` a new folder, or that of an earlier run with the same model,
    which is continued. `executor` scores spans; by default `workers` threads of this process do, one per core.
    `on_note` is called if a new job's folder contains other files.
    """
    options = options or JobOptions()
    detector = model if isinstance(model, SoundDetector) else load(model)
    folder = JobFolder(Path(path_text(out, "out")))
    given = as_paths(files)
    _check_options(detector, options)
    check_exists(given)
    recordings = find_recordings(given, folder.root)
    if not recordings:
        raise DataError(f"{first_few(map(str, given))}: no audio files found")
    if not folder.ledger.exists() and (note := other_files_note(folder.root)):
        on_note(note)
    executor = executor or LocalExecutor(detector.scorer, workers)
    with disk_errors(folder.root), folder.opened(), Ledger(folder.ledger) as ledger:
        return _Job(folder, ledger, detector, options, executor, on_progress).run(given, recordings)


class _Job:
    """One run: decides what to do with each recording, and writes its files, its ledger entry and the tables."""

    def __init__(
        self,
        folder: JobFolder,
        ledger: Ledger,
        detector: SoundDetector,
        options: JobOptions,
        executor: Executor,
        on_progress: OnProgress,
    ) -> None:
        self.folder, self.ledger = folder, ledger
        self.files = OutputFiles(folder, ledger, safe_csv=options.safe_csv)
        self.detector, self.scorer = detector, detector.scorer
        self.executor, self.options = executor, options
        self.formats = check_formats(options.formats)
        self.decoder = options.decoder or detector.decoder
        self.on_progress = on_progress
        self.report = JobReport(str(folder.root))
        settings = json_text(self.decoder.to_dict(), sort_keys=True)
        self.decoder_key = hashlib.sha256(settings.encode()).hexdigest()
        self.begun: dict[Path, os.stat_result | None] = {}  # recordings being read, with the state of their file before
        self._sizes: dict[Path, int] = {}  # bytes of each recording to score
        self._bytes_unopened = self._bytes_known = 0  # of recordings not opened yet; of those whose duration is known
        self._seconds_known = self._seconds_scored = 0.0

    def run(self, given: list[Path], recordings: list[tuple[Path, Path]]) -> JobReport:
        """Process recordings (root, path), which `find_recordings(given)` returned."""
        started = time.monotonic()
        known = list(self.ledger.entries(with_missing=True))
        missing = find_missing(known, given, recordings)
        named = choose_names(recordings, {entry.path: entry.name for entry in known})
        named = [(path, name) for path, name in named if path not in missing]
        is_new_decoder = self._check_earlier_runs({path for path, _ in named} | missing)
        # nothing has been written so far: a rejected call leaves the folder unchanged
        self.report.files = len(named)
        self.report.replaced = self.ledger.counts()["done"] if is_new_decoder else 0
        self.report.missing = sum(entry.path in missing and not entry.missing for entry in known)
        self.ledger.add(named)
        self.ledger.set_missing(missing)
        self._start()
        if is_new_decoder or self.report.missing:
            self._write_tables()  # without outdated rows, also while the job runs
        try:
            self._process([path for path, _ in named])
        except KeyboardInterrupt:
            self._close()
            raise
        except BaseException:
            with suppress(EarmarkError):  # the disk may be full
                self.ledger.release(self.begun)
            raise
        self._close()
        self.report.pending = self.ledger.counts()["pending"]
        self.report.hours = self._seconds_scored / 3600
        self.report.seconds = time.monotonic() - started
        return self.report

    def _check_earlier_runs(self, requested: set[Path]) -> bool:
        """One folder, one model; one table, one decoder. Returns whether the decoder has changed."""
        about, root = self.ledger.about(), self.folder.root
        if any(about.get(key, value) != value for key, value in self._identity().items()):
            model = str(about.get("model"))
            raise ArgumentError(f"{root} contains a job of another model ({model}); choose another folder")
        if about["decoder"] in ("", self.decoder_key):
            return False
        others = [entry.name for entry in self.ledger.entries("done") if entry.path not in requested]
        if others:
            raise ArgumentError(
                f"{root} contains results with other settings for other recordings ({len(others)}, such "
                f"as {others[0]}); pass these or their folder too, or choose another folder"
            )
        return True

    def _identity(self) -> dict[str, str]:
        return {"fingerprint": self.scorer.fingerprint, "classes": json.dumps(self.scorer.classes)}

    def _start(self) -> None:
        if self.ledger.about().get("is_running"):  # the last run was killed
            self.files.remove_unfinished()
        model = str(self.detector.path)
        about = {**self._identity(), "model": model, "decoder": self.decoder_key, "is_running": "yes"}
        if self.options.presence is not None:
            about["horizon"] = repr(self.options.presence)
        self.ledger.set_about(about)
        self._write_about()

    def _close(self) -> None:
        self.ledger.release(self.begun)
        self._write_tables()
        self.ledger.set_about({"is_running": ""})

    def _process(self, paths: list[Path]) -> None:
        batch, suspects = list[Path](), list[Path]()
        for path in paths:
            entry = self.ledger.entry(path)
            if self._must_score(entry):
                (suspects if entry.attempts else batch).append(path)
        self._update_progress()
        self._score(batch, self.executor)
        if suspects:
            source = self.detector if self.detector.path else self.scorer
            with isolated(self.scorer, source, self.options.span, otherwise=self.executor) as executor:
                for path in suspects:
                    self._score([path], executor)

    def _score(self, paths: list[Path], executor: Executor) -> None:
        score_files(
            paths,
            self.scorer,
            executor,
            on_result=self._handle,
            on_start=self._begin,
            on_duration=self._set_duration,
            on_gaps=self.ledger.set_gaps,
            on_scored=self._count_scored,
            span=self.options.span,
            damaged=self.options.damaged,
        )

    def _must_score(self, entry: Entry) -> bool:
        """Whether a recording must be scored. If not, it is up to date now."""
        status = status_of(entry.path)
        if status is not None and entry.is_unchanged(status) and self._bring_up_to_date(entry, status):
            return False
        self._sizes[entry.path] = 0 if status is None else status.st_size
        self._bytes_unopened += self._sizes[entry.path]
        return True

    def _bring_up_to_date(self, entry: Entry, status: os.stat_result) -> bool:
        """Update the results of a recording from what is stored; False if that requires scoring it again."""
        if self.options.damaged == "refuse" and self.ledger.has_gaps(entry):
            return False
        has_scores = entry.scores and self.folder.scores(entry.name).exists()
        if self.options.keep_scores and not has_scores:
            return False
        is_decoded = entry.decoder == self.decoder_key
        if is_decoded and self.options.presence in (None, entry.horizon):
            if self._add_formats(entry):
                self.report.redecoded += 1
            else:
                self.report.kept += 1
            return True
        scores = self._kept_scores(entry) if has_scores else None
        if scores is None:
            return False
        if is_decoded:
            self._pool(entry, scores)
            self._add_formats(entry)
        else:
            self._finish(entry, scores, status, has_scores=True)
        self.report.redecoded += 1
        self._update_progress()
        return True

    def _begin(self, path: Path) -> None:
        self.begun[path] = status_of(path)
        self._bytes_unopened -= self._sizes[path]
        self.ledger.begin(path, self.begun[path])

    def _set_duration(self, path: Path, seconds: float) -> None:
        self._bytes_known += self._sizes[path]
        self._seconds_known += seconds
        self._update_progress()

    def _count_scored(self, seconds: float) -> None:
        self._seconds_scored += seconds
        self._update_progress()

    def _handle(self, path: Path, result: RecordingScores | Exception) -> None:
        status, now, entry = self.begun[path], status_of(path), self.ledger.entry(path)
        if isinstance(result, Exception):
            has_died = isinstance(result, WorkerError)  # it is isolated in the next run too
            self._fail(entry, result, status, attempts=entry.attempts if has_died else 0)
        elif status is None or now is None or not entry.is_unchanged(now):
            self._fail(entry, DataError("changed while it was read; the next run retries it"), status)
        else:
            self._finish(entry, result, status)
            self.report.done += 1
        del self.begun[path]  # not before: if the disk is full, the recording is released
        self._update_progress()

    def _fail(self, entry: Entry, error: Exception, status: os.stat_result | None, *, attempts: int = 0) -> None:
        reason = reason_of(error, entry.path)
        self.files.remove_outputs(entry)
        self.ledger.fail(entry.path, reason, status, attempts=attempts)
        self.report.failed += 1
        self.report.first_failure = self.report.first_failure or f"{entry.name}: {reason}"

    def _update_progress(self) -> None:
        """Report hours scored and to score; the total is estimated from file sizes until all files are opened."""
        seconds_left = self._bytes_unopened * self._seconds_known / max(1, self._bytes_known)
        total = (self._seconds_known + seconds_left) / 3600
        settled = self.report.done + self.report.redecoded + self.report.kept + self.report.failed
        detail = f"{settled} of {self.report.files} recordings"
        self.on_progress(Progress("detecting", self._seconds_scored / 3600, total, "h", detail))

    def _finish(
        self, entry: Entry, scores: RecordingScores, status: os.stat_result, *, has_scores: bool = False
    ) -> None:
        """Write the results of a recording: first files, then the ledger. If it is done there, its files exist."""
        events = decode_scores(scores, self.decoder, entry.name)
        began = recording_start(entry.path)
        labels = self._label_files(entry)
        files, scores_file = dict(labels), self.folder.scores(entry.name)
        if self.options.keep_scores and not has_scores:
            files[scores_file] = "scores"
        with self.files.writing(files, recording=entry.path, new_events=True) as drafts:
            self._write_labels(self._table(entry.name, events, began), scores.duration, labels, drafts)
            if scores_file in files:
                write_scores(drafts[scores_file], scores)
        has_scores = has_scores or scores_file in files
        self.files.remove_outputs(entry, keep={*files, scores_file} if has_scores else set(files))
        if self.options.presence is not None:
            self._pool(entry, scores)
        self.ledger.finish(entry.path, events, status=status, duration=scores.duration, scores=has_scores, began=began)

    def _pool(self, entry: Entry, scores: RecordingScores) -> None:
        """Pool the probabilities of a recording for presence.csv."""
        horizon = self.options.presence or math.inf
        times, P = repool(scores, self.detector.pool, None if math.isinf(horizon) else horizon)
        self.ledger.set_presence(entry.path, horizon, np.column_stack([times, P]))

    def _add_formats(self, entry: Entry) -> bool:
        """Write events in formats that are missing; whether there were any."""
        written = self.ledger.outputs(entry)
        files = {
            path: format
            for path, format in self._label_files(entry).items()
            if written.get(self.files.owner.key(path)) != format or not path.exists()
        }
        if files:
            events = self.ledger.events(entry)
            with self.files.writing(files, recording=entry.path) as drafts:
                self._write_labels(self._table(entry.name, events, entry.began), entry.duration or 0.0, files, drafts)
        return bool(files)

    def _kept_scores(self, entry: Entry) -> RecordingScores | None:
        """Scores of an earlier run, if they are valid."""
        try:
            scores = read_scores(self.folder.scores(entry.name))
        except DataError:
            return None
        return scores if scores.fingerprint == self.scorer.fingerprint else None

    def _label_files(self, entry: Entry) -> dict[Path, str]:
        return {self.folder.labels(entry.name, format): format for format in self.formats}

    def _table(self, name: str, events: Sequence[Label], began: datetime | None) -> LabelTable:
        known = {} if began is None else {name: began}
        return LabelTable(events, filenames=[name], classes=self.detector.classes, began=known)

    def _write_labels(
        self, table: LabelTable, duration: float, files: dict[Path, str], drafts: dict[Path, Path]
    ) -> None:
        known = {"duration": duration, "safe": self.options.safe_csv}
        for path, format in files.items():
            options = {name: value for name, value in known.items() if name in FORMATS[format].options()}
            FORMATS[format].cls(**options).write(table, drafts[path])

    def _write_tables(self) -> None:
        """Write events.csv, failed.csv, damaged.csv and presence.csv from the ledger."""
        self._write_presence()
        failed = [(entry.name, entry.reason) for entry in self.ledger.entries("failed")]
        if failed:
            self.files.write_table(self.folder.failed, ("filename", "reason"), failed, is_viewed=True)
        elif self.files.remove(self.folder.failed):
            self.files.remove_views()
        gaps = list(self.ledger.all_gaps())
        self.report.damaged = len({name for name, *_ in gaps})
        if gaps:
            self.files.write_table(self.folder.damaged, ("filename", "onset", "offset", "reason"), gaps)
        else:
            self.files.remove(self.folder.damaged)
        self.files.write_table(self.folder.merged, *event_table(self.ledger), is_viewed=True)
        self.report.events = sum(entry.events or 0 for entry in self.ledger.entries("done"))
        self.report.edited, self.report.outdated = self.files.edited, self.files.outdated

    def _write_presence(self) -> None:
        horizon, self.report.presence = self._horizon(), None
        if horizon is None:
            return
        recordings = sum(entry.horizon == horizon for entry in self.ledger.entries())
        if not recordings and self.options.presence is None:  # no row of it is valid any more
            self.files.remove(self.folder.presence)
            return
        self.files.write_table(self.folder.presence, *presence_table(self.ledger, horizon, self.detector.classes))
        self.report.presence = recordings

    def _horizon(self) -> float | None:
        """Seconds over which presence.csv is pooled; None if there is no such file and none is requested."""
        if self.options.presence is not None:
            return self.options.presence
        horizon = self.ledger.about().get("horizon")
        try:
            return float(horizon) if horizon and self.folder.presence.exists() else None
        except ValueError:
            raise DataError(f"{self.ledger.path}: horizon: expected a number of seconds, got {horizon!r}") from None

    def _write_about(self) -> None:
        """Write job.json."""
        model, horizon = self.detector.path, self._horizon()
        about = {
            "model": None if model is None else str(model.absolute()),
            "fingerprint": self.scorer.fingerprint,
            "classes": list(self.scorer.classes),
            "decoder": self.decoder.to_dict(),
            "formats": list(self.formats),
            "presence": "recording" if horizon == math.inf else horizon,  # JSON has no infinity
            "keep_scores": self.options.keep_scores,
            "safe_csv": self.options.safe_csv,
            "damaged": self.options.damaged,
            "versions": {name: version(name) for name in ("earmark", "numpy", "soundfile", "soxr")},
            "command": self.options.command,
        }
        with self.files.writing({self.folder.about: "table"}) as drafts:
            drafts[self.folder.about].write_text(json_text(about, indent=1))


def _check_options(detector: SoundDetector, options: JobOptions) -> None:
    check_formats(options.formats)
    check_damaged(options.damaged)
    (options.decoder or detector.decoder).check_classes(len(detector.classes))
    if options.presence is None:
        return
    hop = detector.scorer.hop * detector.scorer.reduction
    if not isinstance(options.presence, Real) or not options.presence >= hop:
        seconds = f"expected a number of seconds, at least the {hop:.3f} s between frames"
        raise ArgumentError(f"presence: {seconds}, or math.inf for whole recordings, got {options.presence!r}")
    detector.pool.stream()  # raises if the operator cannot pool over parts of a recording
