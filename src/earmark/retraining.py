"""Retraining with the verdicts of a review, and a test of whether it helped.

    result = retrain("found", "clips", "found/again-1")
    print(result)

The training of a job's model continues with its labelled clips and the job's verdicts. The old and the new model are
then compared by a statistical test on clips that neither was trained on: the data's test split. How many of the
held-out verdicts each model detects is reported too. Finally, the new model detects events in the same recordings, in a
new folder with a copy of the verdicts, so that the review can continue there. The old job is not changed.

The server of a review runs this module in a separate process, which prints a line of JSON for each step.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from earmark import api
from earmark.audio import AnyPath
from earmark.datasets import Collection, open_data
from earmark.detection.detector import SoundDetector, load
from earmark.detection.job import JobOptions, run_job
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.evaluation.comparison import compare_entries
from earmark.evaluation.systems import System
from earmark.files import json_text, make_folder, written_whole
from earmark.inference.scores import RecordingScores
from earmark.progress import OnNote, OnProgress, Progress, ignore_note, ignore_progress
from earmark.reviewing.clips import HELD_OUT, with_labels
from earmark.reviewing.labels import write_table
from earmark.reviewing.source import Source, open_source
from earmark.reviewing.state import Review
from earmark.text import counted
from earmark.timing import span_to_frames

__all__ = ["Retraining", "retrain"]


@dataclass
class Retraining:
    """The result of retraining."""

    run: str  # folder of the new run
    found: str  # folder of the new detection job
    helped: bool | None  # None if no difference is significant
    lines: list[str] = field(default_factory=list)  # sentences about the comparison

    def __str__(self) -> str:
        verdict = {True: "It helped.", False: "It made things worse.", None: "No difference was shown."}[self.helped]
        return "\n".join([verdict, *self.lines, f"New run: {self.run}", f"New events: earmark review {self.found}"])


def retrain(
    found: AnyPath,
    data: AnyPath,
    out: AnyPath,
    *,
    settings: Mapping[str, Any] | None = None,
    on_progress: OnProgress = ignore_progress,
    on_note: OnNote = ignore_note,
) -> Retraining:
    """Train the model of a reviewed job further, compare it with the old one, and detect again.

    `data` are the labelled clips that the model was trained on, as for `earmark.train`; `out` is a new folder for the
    run, the evaluations and the new events; `settings` change the recipe.
    """
    source = open_source(found)
    if source.model is None or not source.model.is_file():
        raise ArgumentError(f"{found}: the model of this job is unknown, or no longer at {source.model}")
    review = Review(source)
    table = write_table(review)
    if not table.is_file():
        raise DataError(f"{found}: nothing has been judged yet")
    folder = make_folder(Path(out))
    run = api.train(
        [data, table],
        folder / "run",
        recipe=source.model,
        settings=settings,
        on_progress=on_progress,
        on_note=on_note,
    )
    old, new = source.model, run.path / "model.safetensors"
    helped, lines = _compare_on_data(old, new, data, folder, on_progress)
    judged, _ = with_labels(open_data(str(data)), table)
    lines += _compare_on_verdicts(load(old), load(new), judged, on_progress)
    events = _detect(source, new, folder / "found", on_progress)
    return Retraining(str(run.path), str(events), helped, lines)


def _compare_on_data(
    old: Path, new: Path, data: AnyPath, folder: Path, on_progress: OnProgress
) -> tuple[bool | None, list[str]]:
    """Whether the new model is better on the test split, and sentences about it."""
    try:
        if "test" not in open_data(str(data)).splits:
            return None, [f"{data} has no test split, so the models cannot be compared on it."]
        entries = [
            System(name, (api.evaluate(model, data, out=folder / part, on_progress=on_progress),))
            for model, name, part in ((old, "the old model", "old"), (new, "the new model", "new"))
        ]
        comparison = compare_entries(entries)
    except EarmarkError as error:
        return None, [f"The models could not be compared on the test split: {error}."]
    lines = [f"On the test split ({comparison.heading}): {verdict.text}." for verdict in comparison.verdicts]
    return None if comparison.tied else comparison.best == "the new model", lines


def _compare_on_verdicts(
    old: SoundDetector, new: SoundDetector, clips: Collection, on_progress: OnProgress
) -> list[str]:
    """Sentences about how many events of the held-out verdicts each model detects.

    They do not say which model is better: most verdicts are about events that the old model detected. A model that
    detects nothing agrees with every verdict "wrong", and one that is as good but different seems better wherever the
    old one is wrong.
    """
    if HELD_OUT not in clips.splits:
        return ["No verdicts on recordings outside the training data were held out for testing; judge more of them."]
    by_old = _detections(old, clips.split(HELD_OUT), on_progress)
    by_new = _detections(new, clips.split(HELD_OUT), on_progress)
    both = by_old.keys() & by_new.keys()
    parts = []
    for present, name in ((True, "right event"), (False, "wrong event")):
        keys = [key for key in both if key[-1] is present]
        if keys:
            n_old, n_new = sum(by_old[key] for key in keys), sum(by_new[key] for key in keys)
            parts.append(f"of {counted(len(keys), name)}, the old model finds {n_old} and the new one {n_new}")
    if not parts:
        return ["The held-out verdicts are about classes that the old model does not know."]
    return [
        f"Among held-out verdicts, {'; '.join(parts)}.",
        "The old model chose most of these events, so they do not show which model is better.",
    ]


def _detections(
    detector: SoundDetector, clips: Collection, on_progress: OnProgress
) -> dict[tuple[str, float, float, str, bool], bool]:
    """Whether a model detects a class in each judged interval, by file, interval, class and whether it is present."""
    scores, _ = detector.score_clips(clips.clips, on_progress=on_progress)
    thresholds = np.broadcast_to(detector.decoder.threshold, len(detector.classes))
    result = {}
    for one in scores:
        for row in clips.labels.of(one.filename):
            if row.label not in detector.classes or row.present is None:
                continue
            onset = row.onset or 0.0
            offset = one.duration if row.offset is None else row.offset
            threshold = thresholds[detector.classes.index(row.label)]
            is_detected = _highest(one, row.label, onset, offset) >= threshold
            result[row.filename, onset, offset, row.label, row.present] = bool(is_detected)
    return result


def _highest(scores: RecordingScores, label: str, onset: float, offset: float) -> float:
    """The highest probability of a class in an interval."""
    first, last = span_to_frames(onset, offset, scores.hop)
    first = min(first, len(scores.p) - 1)  # sound at the end may not fill a frame
    return float(scores.p[first : max(last, first + 1), scores.classes.index(label)].max())


def _detect(source: Source, model: Path, folder: Path, on_progress: OnProgress) -> Path:
    """Detect events with the new model in the same recordings, under the same names, and copy the verdicts."""
    make_folder(folder)
    with Ledger(JobFolder(folder).ledger) as ledger:
        ledger.add([(recording.path, recording.name) for recording in source.recordings])
    paths = [recording.path for recording in source.recordings]
    run_job(model, paths, folder, JobOptions(keep_scores=True), on_progress=on_progress)
    with written_whole(folder / "verdicts.jsonl") as draft:
        shutil.copyfile(source.folder / "verdicts.jsonl", draft)
    return folder


def _main(arguments: Sequence[str]) -> int:
    """Run in a separate process: FOUND DATA OUT [SETTINGS]; print progress and the result as lines of JSON."""

    def emit(**values: object) -> None:
        print(json_text(values), flush=True)

    def progress(now: Progress) -> None:
        emit(stage=now.stage, done=now.done, total=now.total, unit=now.unit, detail=now.detail)

    found, data, out, *rest = arguments
    settings = json.loads(rest[0]) if rest else None
    try:
        result = retrain(
            found, data, out, settings=settings, on_progress=progress, on_note=lambda note: emit(note=note)
        )
    except EarmarkError as error:
        emit(error=str(error))
        return 2
    except KeyboardInterrupt:
        emit(error="stopped")
        return 130
    emit(result=asdict(result), summary=str(result))
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
