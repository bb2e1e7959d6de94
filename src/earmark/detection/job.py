"""Detection in any number of recordings, with a ledger: `run_job`.

Killed at any moment and started again, a job goes on where it was. A recording is done once its outputs are written
whole and the ledger says so; then it is not run again while its size and time, the model and the settings stay. Other
formats are written from the events in the ledger. Other thresholds are decided on kept scores where there are any
(`keep_scores`), else the recording is run again; until then it is left out of events.csv, whose rows are all decided in
one way. One that is gone from a folder that is given is left out too. A recording that cannot be read is a line with
its reason and costs nothing else; the next run tries it again. The events of a recording depend on it, the model and
the decoder alone, not on workers or interruptions. Nor on `span`, up to rounding where sound is resampled: the last bit
of a probability.

How work is cut and who executes it is in `earmark.detection.spans`; what lies where, in `earmark.detection.outputs`.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from earmark.annotations import Label
from earmark.audio.containers import plain_name
from earmark.detection.detector import SoundDetector, load
from earmark.detection.inputs import (
    check_there,
    digest_of,
    find_recordings,
    is_below,
    is_gone,
    is_past,
    is_same_file,
    searched_folders,
    status_of,
)
from earmark.detection.ledger import DIED_TWICE, Entry, Ledger, Stretch
from earmark.detection.outputs import (
    JobFolder,
    check_formats,
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
from earmark.detection.tally import JobReport, Tally
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.events import Decoder
from earmark.files import json_text, make_folder, written_whole
from earmark.inference.scores import RecordingScores, read_scores, repool, write_scores
from earmark.progress import OnProgress

__all__ = ["run_job"]

AnyPath = str | os.PathLike[str]


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
    on_progress: OnProgress | None = None,
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
        Seconds for which probabilities are pooled in presence.csv; infinity for whole recordings. None
        asks for none; a file that is there stays, with the recordings of which it is still true.
    executor
        What runs spans; by default threads of this process.
    span
        Seconds of sound, about, that are run at once.
    retry
        Whether to try again recordings during which the process died twice.
    on_progress
        Called with `JobProgress` whenever something is done.
    command
        For the record, what the user wrote.
    """
    detector = model if isinstance(model, SoundDetector) else load(model)
    decoder, names, folder = decoder or Decoder(), check_formats(formats), JobFolder(Path(out))
    decoder.stream(detector.scorer.hop, detector.classes, "check")  # settings per class must be for these classes
    _check_presence(detector, presence)
    given = [Path(path) for path in files]
    check_there(given)
    found = find_recordings(given, folder.root)
    if not found:
        raise DataError("there are no files of sound in what was given")
    executor = executor or LocalExecutor(detector.scorer, workers)
    with _writing(folder), folder.opened(), Ledger(folder.ledger) as ledger:
        _check_model(folder, ledger, detector)
        job = _Job(folder, ledger, detector, decoder, names, keep_scores, presence, on_progress)
        return job.run(found, searched_folders(given, found), executor, span=span, retry=retry, command=command)


@dataclass
class _Job:
    folder: JobFolder
    ledger: Ledger
    detector: SoundDetector
    decoder: Decoder
    formats: tuple[str, ...]
    keep_scores: bool
    presence: float | None
    on_progress: OnProgress | None
    tally: Tally = field(default_factory=Tally)
    has_changed: bool = False
    """Whether events are not what they were before."""

    def _write_about(self, command: str | None) -> None:
        model, scorer, presence = self.detector.path, self.detector.scorer, self.presence
        if presence is None and self.folder.presence.exists():  # of an earlier run, and still true
            presence = next((kept for text in self.ledger.settings() if (kept := _horizon(text))), None)
        about = {
            "model": None if model is None else str(model.absolute()),
            "fingerprint": scorer.fingerprint,
            "classes": list(scorer.classes),
            "decoder": self.decoder.to_dict(),
            "formats": list(self.formats),
            "presence": "recording" if presence == math.inf else presence,  # JSON knows no infinity
            "keep_scores": self.keep_scores,
            "versions": {name: version(name) for name in ("earmark", "numpy", "soundfile", "soxr")},
            "command": command,
        }
        with written_whole(self.folder.about) as draft:
            draft.write_text(json_text(about, indent=1))

    def run(
        self,
        found: list[tuple[Path, Path]],
        searched: list[Path],
        executor: Executor,
        *,
        span: float,
        retry: bool,
        command: str | None,
    ) -> JobReport:
        started = time.monotonic()
        moves, named = settle_names(found, self.ledger, self.folder.root)
        others = self._others({path for path, _ in named}, moves)
        is_there = ("pending", "running", "done")
        gone = {e.path for e in others if e.state in is_there and is_below(e.path, searched) and is_gone(e.path)}
        self._check_settings([entry for entry in others if entry.state == "done" and entry.path not in gone])
        # nothing was written until here: what is refused leaves the folder as it is
        self.ledger.move(moves.items())
        is_stale = self._take_over(gone)
        self.ledger.drop_failed(e.path for e in others if e.state == "failed" and is_past(e.path))
        self.ledger.add(named)
        suspects = self._recover()
        self._write_about(command)
        if is_stale or self.has_changed:
            self._write_tables()  # which hold nothing that is out of date, also while the job runs
        self.tally.files = len(named)
        try:
            todo = [path for path, _ in named if self._is_to_run(path, retry)]
            # if the process dies again, it is clear whose fault it is
            alone = [[path] for path in todo if path in suspects]
            self._tell()
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
            self._close()
            raise
        except BaseException:
            with suppress(EarmarkError):  # the disk may be full
                self._release()
            raise
        self._close()
        counts = self.ledger.counts()
        waiting = counts["pending"] + counts["running"]
        return self.tally.report(self.folder.root, waiting, time.monotonic() - started)

    def _others(self, asked: set[Path], moves: dict[Path, Path]) -> list[Entry]:
        """Recordings that are not asked for now, where they lie now."""
        entries = (replace(entry, path=moves.get(entry.path, entry.path)) for entry in self.ledger.entries())
        return [entry for entry in entries if entry.path not in asked]

    def _check_settings(self, others: list[Entry]) -> None:
        """One table, one way to decide: recordings that are not asked for now must have been decided alike."""
        other = [entry for entry in others if not self._is_alike(entry.settings)]
        if not other:
            return
        lost = next((entry for entry in other if is_gone(entry.path)), None)
        way = f"name {'it' if len(other) == 1 else 'them'} too"
        if lost is not None:
            way = f"{plain_name(lost.path)} is not there: give its folder too, mount its disk"
        raise ArgumentError(
            f"{self.folder.root} holds {len(other)} other recording{'s' * (len(other) > 1)}, such as "
            f"{(lost or other[0]).name}, decided with other settings; {way}, or choose another folder"
        )

    def _take_over(self, gone: set[Path]) -> bool:
        """Make the ledger this run's; whether tables must be written anew.

        What is gone, or was decided otherwise, is in no table until it is done again.
        """
        own = {"fingerprint": self.detector.scorer.fingerprint, "classes": json.dumps(self.detector.classes)}
        self.ledger.set_about({**own, "model": str(self.detector.path)})
        self.ledger.set_place(os.path.abspath(self.folder.root))
        self.ledger.lose(gone)
        self.tally.gone = len(gone)
        kept = self.ledger.settings() if self.presence is not None else []
        pooled = [text for text in kept if _horizon(text) not in (None, self.presence)]
        for text in pooled:
            self.ledger.drop_presence(text, json.dumps({**_read_settings(text), "presence": None}, sort_keys=True))
        postponed = self.ledger.postpone(text for text in self.ledger.settings() if not self._is_alike(text))
        self.has_changed = bool(gone or postponed)
        return self.has_changed or bool(pooled)

    def _recover(self) -> set[Path]:
        """Clean up after a process that died; recordings that may have killed it."""
        for entry in list(self.ledger.entries("running")):
            if entry.attempts:  # the second time: the ledger calls it failed, and forgets its events
                self._remove_outputs(entry)
        suspects = set(self.ledger.recover())
        if self.ledger.about().get("state") == "open":  # the last run did not end in good order
            remove_unfinished(self.folder, self.ledger)
        self.ledger.set_about({"state": "open"})
        return suspects

    def _release(self) -> None:
        self.ledger.release(text for text in self.ledger.settings() if self._is_alike(text))

    def _close(self) -> None:
        """End in good order."""
        self._release()
        self._write_tables()
        self.ledger.set_about({"state": "closed"})

    def _is_to_run(self, path: Path, retry: bool) -> bool:
        """Whether a recording must be run; if not, it is done already, or done here from what was kept."""
        entry, status = self.ledger.entry(path), status_of(path)
        if entry.settings is not None and status is None and is_gone(path):
            self.ledger.lose([path])
            self.tally.gone += 1
            self.has_changed = True
            return False
        is_same = status is not None and entry.is_unchanged(status)
        if entry.settings is not None and is_same and self._is_settled(entry, entry.settings):
            return False
        if entry.reason == DIED_TWICE:
            if is_same and not retry:
                self.tally.failed += 1
                return False
            self.ledger.forgive(path)
        self.tally.expect(path, 0 if status is None else status.st_size)
        return True

    def _is_settled(self, entry: Entry, decided: str) -> bool:
        """Whether the recording, run before, is as wanted now or could be made so without running it."""
        has_scores = entry.scores and self.folder.scores(entry.name).exists()
        if self.keep_scores and not has_scores:
            return False
        is_alike, is_pooled = self._is_alike(decided), self.presence in (None, _horizon(decided))
        missing = [format for format in self.formats if is_alike and not self._is_written(entry, format)]
        if not (is_alike and is_pooled):
            scores = self._kept_scores(entry) if has_scores else None
            if scores is None:
                return False
            if is_alike:
                self.ledger.set_presence(entry.path, self._pooled(scores), self._settings(self.presence))
            else:
                self._finish(entry, scores, entry.path.stat(), entry.seconds or 0.0, has_scores=True)
        if missing:
            self._add_formats(entry, missing)
        if entry.state != "done":  # it was, before
            self.ledger.restore(entry.path)
            self.has_changed = True
        if is_alike and is_pooled and not missing:
            self.tally.kept += 1
        else:
            self.tally.redecided += 1
            self._tell()
        return True

    def _add_formats(self, entry: Entry, missing: list[str]) -> None:
        """Write the events that the recording has in other formats too."""
        files = {self.folder.labels(entry.name, f): f for f in (*entry.written, *missing)}  # the latter win
        self._remove(entry, [f for f in entry.written if f not in files.values()])
        self._remove(entry, missing)  # not the job's, if it is there
        self._write(entry, self.ledger.events(entry.path), entry.duration or 0.0, missing)
        self.ledger.set_formats(entry.path, ",".join(files.values()))

    def _kept_scores(self, entry: Entry) -> RecordingScores | None:
        """What was kept of a recording, if it can be read and is this model's."""
        try:
            scores = read_scores(self.folder.scores(entry.name))
        except DataError:
            return None
        scorer = self.detector.scorer
        is_own = (scores.fingerprint, scores.classes) == (scorer.fingerprint, scorer.classes)
        return scores if is_own else None

    def _pooled(self, scores: RecordingScores) -> list[Stretch]:
        if self.presence is None:
            return []
        times, P = repool(scores, self.detector.pool, None if math.isinf(self.presence) else self.presence)
        return [(float(on), float(off), row) for (on, off), row in zip(times, P, strict=True)]

    def _settings(self, presence: float | None) -> str:
        return json.dumps({"decoder": self.decoder.to_dict(), "presence": presence}, sort_keys=True)

    def _is_alike(self, settings: str | None) -> bool:
        """Whether events were decided as they would be now."""
        return settings is not None and bool(_read_settings(settings)["decoder"] == self.decoder.to_dict())

    def _begin(self, path: Path) -> None:
        status = status_of(path)
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
        if not isinstance(result, Exception) and (status is None or not is_same_file(status, status_of(path))):
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
        presence, stretches = self.presence, self._pooled(scores)
        if presence is None and entry.settings is not None:  # the file is the same, so these are too
            presence, stretches = _horizon(entry.settings), self.ledger.presence(entry.path)
        self.ledger.unsettle(entry.path)
        files = {self.folder.labels(entry.name, f): f for f in (*self.formats, *entry.written)}
        self._remove(entry, list(files.values()), (events, scores.duration))  # as a run that died just here left them
        self._write(entry, events, scores.duration, self.formats)
        self.has_changed = True
        self.ledger.finish(
            entry.path,
            events,
            status=status,
            duration=scores.duration,
            seconds=seconds,
            settings=self._settings(presence),
            formats=",".join(self.formats),
            scores=has_scores,
            digest=digest_of(entry.path),
            presence=stretches,
        )

    def _fail(self, entry: Entry, error: object, status: os.stat_result | None) -> None:
        self.ledger.unsettle(entry.path)
        self._remove_outputs(entry)
        reason = reason_of(error, entry.path)
        self.has_changed |= reason != entry.reason
        self.ledger.fail(entry.path, reason, status)
        self.tally.failed += 1
        self.tally.trouble = self.tally.trouble or f"{entry.name}: {reason}"

    def _is_written(self, entry: Entry, format: str) -> bool:
        return format in entry.written and self.folder.labels(entry.name, format).exists()

    def _write(self, entry: Entry, events: list[Label], duration: float, formats: Sequence[str]) -> None:
        classes = self.detector.classes
        write_recording(self.folder, entry.name, events, classes=classes, formats=formats, duration=duration)

    def _remove(self, entry: Entry, formats: Sequence[str], *more: tuple[list[Label], float]) -> None:
        """Take away files of an earlier run, but keep what somebody has worked on."""
        versions = [(self.ledger.events(entry.path), entry.duration or 0.0), *more]
        self.tally.edited += remove_recording(
            self.folder, entry.name, versions, classes=self.detector.classes, formats=formats
        )

    def _remove_outputs(self, entry: Entry) -> None:
        self._remove(entry, entry.written)
        self.folder.scores(entry.name).unlink(missing_ok=True)
        self.has_changed |= entry.events is not None

    def _write_tables(self) -> None:
        if self.has_changed:
            self.folder.remove_views()
        self.tally.presence = None
        if self.presence is not None or self.folder.presence.exists():
            self.tally.presence, edited = write_presence(self.folder, self.ledger, self.detector.classes)
            self.tally.edited += edited
            if self.presence is None and not self.tally.presence:  # not a line of it is true any more
                self.folder.presence.unlink()
                self.tally.presence = None
        write_failed(self.folder, self.ledger)
        self.tally.events, edited = write_merged(self.folder, self.ledger)
        self.tally.edited += edited

    def _tell(self) -> None:
        if self.on_progress is not None:
            self.on_progress(self.tally.progress())


def _check_presence(detector: SoundDetector, presence: float | None) -> None:
    if presence is None:
        return
    hop = detector.scorer.hop * detector.scorer.reduction
    if not presence >= hop:
        raise ArgumentError(f"presence must be at least the {hop:.3f} s between frames, found {presence} s")
    detector.pool.stream()  # an operator that cannot says so


def _check_model(folder: JobFolder, ledger: Ledger, detector: SoundDetector) -> None:
    """One folder, one model."""
    own = {"fingerprint": detector.scorer.fingerprint, "classes": json.dumps(detector.classes)}
    about = ledger.about()
    if about and any(about.get(key) != value for key, value in own.items()):
        raise ArgumentError(f"{folder.root} holds a job of another model ({about.get('model')}); choose another folder")


@lru_cache(maxsize=16)
def _read_settings(settings: str) -> dict[str, Any]:
    """A decoder and a horizon; most recordings of a job have the same, with a threshold for each of many classes."""
    read: dict[str, Any] = json.loads(settings)
    return read


def _horizon(settings: str) -> float | None:
    """What presence was pooled over, if it was."""
    horizon: float | None = _read_settings(settings)["presence"]
    return horizon


@contextmanager
def _writing(folder: JobFolder) -> Iterator[None]:
    """A full disk, or one that may not be written to, is one line."""
    try:
        yield
    except OSError as error:
        if isinstance(error.__context__, KeyboardInterrupt):  # which came while something was being cleaned up
            raise KeyboardInterrupt from error
        raise DataError(
            f"{folder.root}: cannot be written to: {error.strerror or error}; what is done is kept, and the same "
            "command goes on with the rest"
        ) from error
