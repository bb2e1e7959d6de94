"""The report of evaluated runs: an HTML page with results, tests, errors and how to reproduce them.

The tables are also written as Markdown and LaTeX, next to the page. Of the errors, the page shows the largest. A false
alarm is a detected event that overlaps no event of its class in the reference; the higher its probability, the worse. A
miss is a reference event that no detected event of its class overlaps; the lower its probability, the worse. Where the
reference leaves a class unknown, a detected event is no false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from earmark import plots
from earmark.annotations import Label, LabelTable
from earmark.datasets import Clip
from earmark.encoders.features import Features, parse_features
from earmark.errors import ArgumentError, EarmarkError
from earmark.evaluation.comparison import Comparison, compare_entries
from earmark.evaluation.references import read_reference
from earmark.evaluation.reliability import judge
from earmark.evaluation.result import Evaluation
from earmark.evaluation.systems import group_runs
from earmark.files import make_folder
from earmark.ownership import owned
from earmark.plots.clip import clip_figure, log_mel, spectrogram_config, within
from earmark.plots.scores import class_figure, curve_figure
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.reporting import results
from earmark.reporting.pages import fill_page, fill_text, inline_audio, inline_png, inline_svg, write_page, write_tables
from earmark.reporting.results import EvaluatedRun, FrameSize, alpha_table, class_table, required_activity
from earmark.tables import Table
from earmark.timing import span_to_frames, time_to_frame, time_to_sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats = npt.NDArray[np.floating[Any]]

DESCRIPTIONS = {
    "classes": "F1 by class and model, with intervals",
    "alphas": "Learned alpha by class and model",
    "durations": "Active time of each class per clip",
    "curves": "Precision against recall by model",
    "example": "Output for one clip: spectrogram, reference, probabilities",
    "published": "F1 of each system beside the paper's",
    "network": "Block diagram of the network",
}
"""Descriptions of figures for screen readers, by name."""

_STEPS = 4  # of the work, for progress
_MARGIN = 1.0  # seconds of audio before and after a mistake
_LONGEST_AUDIO = 8.0  # seconds
_LONGEST_IMAGE = 30.0  # seconds
_MOST_CLASSES = 6  # in an image
_MOST = 3  # mistakes of each kind


def write_report(
    runs: Iterable[Path] | Comparison,
    out: Path,
    *,
    data: str | None = None,
    title: str | None = None,
    extra: Mapping[str, Any] | None = None,
    force: bool | None = None,
    on_progress: OnProgress = ignore_progress,
) -> list[Path]:
    """Write a page about evaluated runs, with its tables as Markdown and LaTeX next to it; returns the files.

    Parameters
    ----------
    runs
        Folders with the results of `earmark evaluate`, or their comparison.
    data
        The data set with the evaluated clips, for durations and examples of errors; by default the recorded path.
    extra
        Further values for the template; `tables` and `drawings` are added to the page's.
    force
        Whether to replace files that earmark did not write, or that were edited since.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"{out}: expected the name of an HTML file, ending in .html")
    make_folder(out.parent)
    files = [out, out.with_suffix(".md"), out.with_suffix(".tex")]
    with owned(out.parent, files=files, force=force):
        return _write_report(runs, out, data, title, extra or {}, on_progress)


def _write_report(
    runs: Iterable[Path] | Comparison,
    out: Path,
    data: str | None,
    title: str | None,
    extra: Mapping[str, Any],
    on_progress: OnProgress,
) -> list[Path]:
    comparison = runs if isinstance(runs, Comparison) else compare_entries(group_runs(runs))
    records = [results.read_run(saved, entry.name) for entry in comparison.entries for saved in entry.evaluations]
    material = _open_material(records[0].saved, data)
    on_progress(Progress("report", 1, _STEPS, "steps"))
    values = _results(comparison, material)
    on_progress(Progress("report", 2, _STEPS, "steps"))
    mistakes, mistakes_note = _show_mistakes(comparison, records, material)
    on_progress(Progress("report", 3, _STEPS, "steps"))
    values |= {
        "title": title or fill_text("title.txt.j2", comparison=comparison),
        "comparison": comparison,
        "runs": records,
        "lead": fill_text("lead.txt.j2", comparison=comparison, runs=records),
        "verdict": fill_text("verdict.txt.j2", comparison=comparison, untested=None),
        "learning": _learning_curves(records),
        "mistakes": mistakes,
        "mistakes_note": mistakes_note,
        "commands": results.commands(records, out),
    }
    for key, value in extra.items():
        values[key] = {**values[key], **value} if key in ("tables", "drawings") else value
    written = [write_page(out, fill_page("runs.html.j2", **values))]
    shown = {"title": values["title"], "text": values["verdict"]}
    written += write_tables(out.with_suffix(""), values["tables"].values(), latex_intervals=False, **shown)
    on_progress(Progress("report", _STEPS, _STEPS, "steps"))
    return written


@dataclass(frozen=True)
class _Material:
    """The evaluated clips and their reference, as far as they are available."""

    labels: LabelTable | None = None
    """The true reference, for mistakes."""
    reference: LabelTable | None = None
    """The reference of the scores: the same, or the authors'."""
    clips: dict[str, Clip] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    problem: str = ""


def _open_material(saved: Evaluation, data: str | None) -> _Material:
    """The evaluated clips with their reference, or the reason why they are not available."""
    scores = saved.scores
    source = data or scores.get("data")
    if not source:
        return _Material(problem="the evaluation did not record its data")
    try:
        collection, truth = results.true_labels(saved, source)
        reference = truth
        if scores.get("reference") == "authors":
            clips, classes = saved.static_counts.filenames, scores["classes"]
            reference = read_reference("authors", collection.labels, clips, classes).table
        durations = {name: clip.duration for name, clip in saved.probabilities().items() if name in truth.filenames}
    except (EarmarkError, OSError) as error:
        return _Material(problem=_one_line(error))
    return _Material(truth, reference, {clip.filename: clip for clip in collection.clips}, durations)


def _results(comparison: Comparison, material: _Material) -> dict[str, Any]:
    """Tables and figures of the page, by name, and an example of a learned alpha."""
    entries = comparison.entries
    counts = entries[0].evaluations[0].static_counts
    score = "Segment F1" if comparison.statistic == "dynamic.f1" else "Clip F1"
    f1 = {entry.name: results.class_f1(entry, level=comparison.level) for entry in entries}
    tables: dict[str, Table] = {"models": comparison.table(), "classes": class_table(f1, counts, score)}
    drawn = {"classes": class_figure(f1, counts.classes)}
    example: dict[str, Any] | None = None
    at_zero: list[str] = []
    alphas = results.learned_alphas(entries)
    if alphas:
        frames = results.frame_sizes(entries)
        activity = {} if material.labels is None else results.active_shares(material.labels, material.durations)
        shares = results.required_shares(entries)
        at_zero = results.at_zero(entries)
        tables["alphas"] = alpha_table(alphas, shares, activity, at_zero, counts.classes, frames)
        drawn["alphas"] = plots.learned_alpha(alphas, at_zero=at_zero)
        example = _alpha_example(comparison, alphas, shares, frames, activity)
    if material.labels is not None and material.reference is not None:
        drawn["durations"] = _duration_figure(material.labels, material.durations)
        first = {entry.name: entry.evaluations[0] for entry in entries}
        drawn["curves"] = curve_figure(first, material.reference)
    drawings = {name: inline_svg(figure, DESCRIPTIONS[name]) for name, figure in drawn.items() if figure is not None}
    return {"tables": tables, "drawings": drawings, "example": example, "at_zero": at_zero}


def _alpha_example(
    comparison: Comparison,
    alphas: Mapping[str, Mapping[str, float]],
    shares: Mapping[str, Mapping[str, float]],
    frames: Mapping[str, FrameSize],
    activity: Mapping[str, tuple[float, float]],
) -> dict[str, Any] | None:
    """The class with the largest alpha, of the best system whose alpha can be read as a duration; None without one."""
    readable = [name for name, by_class in shares.items() if not np.isnan(list(by_class.values())).any()]
    if not readable:
        return None
    scores = {name: comparison.values[name][comparison.statistic].value for name in readable}
    system = max(readable, key=lambda name: np.nan_to_num(scores[name], nan=-1))
    label = max(alphas[system], key=alphas[system].__getitem__)
    return {
        "system": system,
        "label": label,
        "alpha": alphas[system][label],
        "needs": required_activity(shares[system][label], frames.get(system)),
        "activity": activity.get(label),
        "at_zero": results.at_zero([entry for entry in comparison.entries if entry.name == system]),
    }


def _duration_figure(labels: LabelTable, durations: Mapping[str, float]) -> Figure | None:
    """Active time of each class in each clip; None if the reference has no times."""
    if not durations or not any(row.has_times for row in labels):
        return None
    lengths = np.array(list(durations.values()))
    median = float(np.median(lengths))
    is_uniform = (abs(lengths - median) < 0.01 * median).all()
    return plots.event_durations(labels, clip_duration=round(median, 2) if is_uniform else None)


def _learning_curves(runs: Sequence[EvaluatedRun]) -> dict[str, Markup]:
    """Learning curves by the system and folder of the run, for runs with a log."""
    drawings = {}
    for run in runs:
        name = f"{run.system}: {run.saved.folder}"
        log = run.saved.folder / "log.jsonl"
        if log.is_file() and log.read_bytes().strip():
            figure = plots.learning_curves(log, run.saved.static_counts.classes)
            drawings[name] = inline_svg(figure, f"Learning curves of {name}")
    return drawings


def _show_mistakes(
    comparison: Comparison, runs: Sequence[EvaluatedRun], material: _Material
) -> tuple[list[dict[str, Any]], str]:
    """The worst mistakes of the best system's first run, and why some or all are missing."""
    run = next(run for run in runs if run.system == comparison.best)
    if material.labels is None:
        return [], f"The clips are not available: {material.problem}. Give their location with --data."
    if run.saved.dynamic_counts is None:
        return [], "The reference has no event times, so detected events cannot be checked."
    dense = results.dense_probabilities(run.saved)
    if not dense or "features" not in run.about:
        remedy = "evaluate the run again, in the folder of its model file"
        return [], f"The model's probabilities are not available: {remedy}."
    features = parse_features(run.about["features"])
    estimate = run.saved.estimate()
    p = {name: dense[name] for name in material.labels.filenames if name in dense and name in material.clips}
    shown: list[dict[str, Any]] = []
    for mistake in worst_mistakes(material.labels, estimate, p, features.hop):
        clip, name = material.clips[mistake.filename], comparison.best
        try:
            shown.append(_show_mistake(mistake, clip, features, material.labels, estimate, p[clip.filename], name))
        except (EarmarkError, OSError) as error:
            return shown, f"The audio could not be read: {_one_line(error)}"
    return shown, "" if shown else "None: every detected event overlaps a reference event of its class, and vice versa."


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


@dataclass(frozen=True)
class Mistake:
    """A false alarm or a miss; `p` is the highest probability of the class between onset and offset."""

    filename: str
    label: str
    onset: float
    offset: float
    p: float
    is_miss: bool


def worst_mistakes(reference: LabelTable, estimate: LabelTable, p: Mapping[str, Floats], hop: float) -> list[Mistake]:
    """The worst false alarms, then the worst misses: three of each kind, at most one per class.

    `p` is (frames, classes) by file, with the reference's classes; `hop` is the time between its frames, in seconds.

    >>> reference = LabelTable([("a.wav", 0.0, 1.0, "dog"), ("a.wav", 3.0, 4.0, "dog")])
    >>> estimate = LabelTable([("a.wav", 0.5, 1.5, "dog"), ("a.wav", 2.0, 2.5, "dog")])
    >>> p = {"a.wav": np.array([[0.9], [0.9], [0.6], [0.1], [0.8], [0.1], [0.2], [0.1]])}
    >>> for mistake in worst_mistakes(reference, estimate, p, 0.5):
    ...     print(mistake)
    Mistake(filename='a.wav', label='dog', onset=2.0, offset=2.5, p=0.8, is_miss=False)
    Mistake(filename='a.wav', label='dog', onset=3.0, offset=4.0, p=0.2, is_miss=True)
    """

    def mistake(row: Label, *, is_miss: bool) -> Mistake:
        onset, offset = row.span or (0.0, 0.0)
        first, last = span_to_frames(onset, offset, hop)
        values = p[row.filename][:, reference.classes.index(row.label)]
        highest = values[min(first, len(values) - 1) : last].max()
        return Mistake(row.filename, row.label, onset, offset, float(highest), is_miss)

    alarms, misses = [], []
    for name in p:
        truth = [row for row in reference.of(name) if row.is_event]
        detected = [row for row in estimate.of(name) if row.is_event]
        alarms += [mistake(row, is_miss=False) for row, is_right in judge(detected, reference) if not is_right]
        for row in truth:
            if not any(row.overlaps(other) for other in detected if other.label == row.label):
                misses.append(mistake(row, is_miss=True))
    alarms.sort(key=lambda m: (-m.p, m.onset - m.offset))  # of equals, the longer first
    misses.sort(key=lambda m: (m.p, m.onset - m.offset))
    return [*_one_per_class(alarms), *_one_per_class(misses)]


def _one_per_class(mistakes: list[Mistake]) -> list[Mistake]:
    first = {mistake.label: mistake for mistake in reversed(mistakes)}
    return [mistake for mistake in mistakes if first[mistake.label] is mistake][:_MOST]


def _show_mistake(
    mistake: Mistake,
    clip: Clip,
    features: Features,
    reference: LabelTable,
    estimate: LabelTable,
    p: Floats,
    model: str,
) -> dict[str, Any]:
    """Image and audio of a mistake as `data:` URLs, with their times in the clip; p is (frames, classes)."""
    samples = clip.read(features.rate)
    end = len(samples) / features.rate
    onset = max(0.0, min(mistake.onset - _MARGIN, end - 2 * _MARGIN))
    offset = min(end, max(onset + 2 * _MARGIN, min(mistake.offset + _MARGIN, onset + _LONGEST_AUDIO)))
    begin = max(0.0, min((onset + offset - _LONGEST_IMAGE) / 2, end - _LONGEST_IMAGE))
    first = time_to_frame(begin, features.hop)
    begin, stop = first * features.hop, min(end, begin + _LONGEST_IMAGE)
    last = min(len(p), span_to_frames(begin, stop, features.hop)[1])
    drawn = spectrogram_config(features)
    columns = slice(time_to_frame(begin, drawn.hop), span_to_frames(begin, stop, drawn.hop)[1])
    truth, detected = (within(table.of(mistake.filename), begin, stop) for table in (reference, estimate))
    labels = dict.fromkeys([mistake.label, *(row.label for row in (*truth, *detected))])
    figure = clip_figure(
        log_mel(samples, drawn)[:, columns],
        drawn,
        truth,
        {model: p[first:last]},
        reference.classes,
        onset=begin,
        duration=stop - begin,
        p_hop=features.hop,
        events={model: detected},
        only=list(labels)[:_MOST_CLASSES],
    )
    part = samples[time_to_sample(onset, features.rate) : time_to_sample(offset, features.rate)]
    return {
        "mistake": mistake,
        "image": inline_png(figure),
        "audio": inline_audio(part, features.rate),
        "audio_onset": onset,
        "audio_offset": offset,
    }
