"""Evaluation on a data set: of a model, or of events from another program.

Both functions return the evaluation and its reference labels, for figures. `earmark.evaluate` documents the parameters.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from earmark import audio
from earmark.annotations import LabelTable
from earmark.audio import AnyPath
from earmark.datasets import Clip, Collection, is_published, open_data, path_of, separator_in
from earmark.datasets.cleaning import read_clean_labels
from earmark.detection.detector import SoundDetector
from earmark.errors import ArgumentError
from earmark.evaluation.chosen import TrainingData, choose_clips, left_out_notes, training_data
from earmark.evaluation.references import (
    fit_durations,
    fit_estimate,
    identical_notes,
    needs_labels,
    read_durations,
    read_reference,
)
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import EvaluationOptions, evaluate_events, evaluate_scores
from earmark.evaluation.thresholds import tune_decoder, tune_thresholds
from earmark.files import path_text
from earmark.progress import OnProgress
from earmark.schema import load_toml
from earmark.settings import Settings
from earmark.text import counted, first_few, plural
from earmark.training.memory import unfinished_note


def evaluate_model(
    detector: SoundDetector,
    data: str,
    split: str | None,
    reference: str | None,
    tune_on: str | None,
    options: EvaluationOptions,
    on_progress: OnProgress,
) -> tuple[Evaluation, LabelTable]:
    """The evaluation of a model, and its reference labels."""
    path = detector.path
    config = None if path is None else _read_config(path.with_name("config.toml"))
    trained_on = training_data(path)
    data = trained_on.as_trained(data)
    part, split, notes = choose_clips(data, split, trained_on, needs_labels=needs_labels(reference))
    clips, table, more = _labelled_clips(part, reference, detector.classes)
    notes += more
    if tune_on in ("test", split) or (tune_on is not None and split == "all"):
        which = "the test split" if tune_on == "test" else "the clips that are evaluated"
        remedy = "evaluate another split" if tune_on == "validate" else "use validate"
        raise ArgumentError(
            f"--tune-on {tune_on}: thresholds tuned on {which} would make its scores too optimistic; {remedy}"
        )
    decoder = options.decoder or detector.decoder
    if tune_on is not None:
        others, labels, _ = _labelled_clips(open_data(data, tune_on), None, detector.classes)
        recordings, _ = detector.score_clips(others, on_progress=on_progress)
        tune = tune_decoder if options.tune == "decoder" else tune_thresholds
        options = replace(options, decoder=decoder)
        decoder = tune(recordings, labels, options, tuned_on=f"{data}, {tune_on}")
    recordings, skipped = detector.score_clips(clips, on_progress=on_progress)
    notes = (*trained_on.notes(data, split), *notes)
    if path is not None and (unfinished := unfinished_note(path.parent)):
        notes = (unfinished, *notes)
    if skipped:
        reasons = first_few(f"{name} ({why})" for name, why in skipped.items())
        verb = plural(len(skipped), "is", "are")
        notes += (f"{counted(len(skipped), 'clip')} could not be read and {verb} left out: {reasons}",)
    about = {
        "data": data,
        "reference": reference or "data",
        "tune_on": tune_on,
        "tune": None if tune_on is None else options.tune,
        "align": options.align,
        "split": split,
        "model": None if path is None else str(path),
        "config": config,
        "alpha": detector.alpha,
        "skipped": skipped,
        "notes": list(notes),
        "threshold": decoder.to_dict()["threshold"],
    }
    return evaluate_scores(recordings, table, replace(options, decoder=decoder), about=about), table


def _read_config(path: Path) -> dict[str, Any] | None:
    """The sections of a run's `config.toml`, checked; None if there is no such file."""
    if not path.is_file():
        return None
    sections = load_toml("settings", path, "recipes")
    Settings.from_dict(sections, where=path)
    return sections


def _labelled_clips(
    part: Collection, reference: str | None, classes: Sequence[str]
) -> tuple[Sequence[Clip], LabelTable, tuple[str, ...]]:
    """Clips that have labels, these labels, and notes about clips and classes that are left out."""
    names = [clip.filename for clip in part.clips]
    table, notes = read_reference(reference, part.labels, names, classes, separator=part.separator)
    return part.select(table.filenames).clips, table, notes


def evaluate_event_file(
    events: Path,
    data: str,
    split: str | None,
    reference: str | None,
    durations: AnyPath | None,
    options: EvaluationOptions,
) -> tuple[Evaluation, LabelTable]:
    """The evaluation of events from another program, and its reference labels."""
    table, split, notes = _read_split(data, split, needs_labels=needs_labels(reference))
    if reference is not None:
        table, more = read_reference(reference, table, table.filenames, separator=separator_in(data))
        notes += more
    seconds = None
    if durations is not None:
        seconds, (table, more) = fit_durations(read_durations(Path(path_text(durations, "durations"))), table)
        notes += more
    detected, changes = read_clean_labels(events, known=table.classes, may_be_empty=True)
    table, (estimate, more) = fit_estimate(detected, table)
    about = {
        "data": data,
        "reference": reference or "data",
        "tune_on": None,
        "align": options.align,
        "split": split,
        "model": None,
        "events": str(events),
        "notes": [*identical_notes(table, estimate), *notes, *changes, *more],
    }
    return evaluate_events(estimate, table, options, durations=seconds, about=about), table


def _read_split(data: str, split: str | None, *, needs_labels: bool) -> tuple[LabelTable, str | None, tuple[str, ...]]:
    """Labels of a data set, or of a file or folder of labels; of one split, where they have splits; and notes."""
    path = path_of(data)
    is_label_folder = path.is_dir() and not any(audio.find(path))
    if is_published(data) or not (path.is_file() or is_label_folder):
        part, split, notes = choose_clips(data, split, TrainingData(), needs_labels=needs_labels)
        return part.labels, split, notes
    table, notes = read_clean_labels(path, separator_in(data))
    if not table.splits or split == "all":
        return table, split, notes
    chosen = split or "test"
    names = [name for name in table.filenames if table.splits.get(name) == chosen]
    if not names:
        splits = ", ".join(sorted(set(table.splits.values())))
        raise ArgumentError(f"{data}: no clips of split {chosen!r}; it has {splits}; --split all evaluates all")
    others = [table.splits[name] for name in table.filenames if name not in names]
    return table.select(names), chosen, (*notes, *left_out_notes(others))
