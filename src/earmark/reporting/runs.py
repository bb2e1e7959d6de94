"""The report of evaluated runs: an HTML page with results, tests, errors and how to reproduce them.

The tables are also written as Markdown and LaTeX, beside the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from earmark import plots
from earmark.annotations import LabelTable
from earmark.datasets import Clip, open_data
from earmark.errors import ArgumentError, EarmarkError
from earmark.evaluation.authors import authors_reference
from earmark.evaluation.comparison import Comparison, Entry, compare_entries, group_runs
from earmark.evaluation.references import fit_reference
from earmark.evaluation.result import Evaluation
from earmark.features import FeatureConfig
from earmark.formats import read_labels
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.reporting import figures, results
from earmark.reporting.mistakes import show_mistake, worst_mistakes
from earmark.reporting.pages import fill_page, fill_text, inline_svg, write_tables, write_text
from earmark.reporting.results import Run
from earmark.reporting.tables import alpha_table, class_table, required_activity
from earmark.tables import Table
from earmark.text import counted, listed

__all__ = ["write_report"]

_STEPS = 4  # of the work, for progress
_FEW = 4  # names in a title


def write_report(
    runs: Iterable[Path | Entry] | Comparison,
    out: Path,
    *,
    data: str | None = None,
    title: str | None = None,
    template: str = "runs.html.j2",
    extra: Mapping[str, Any] | None = None,
    on_progress: OnProgress = ignore_progress,
) -> list[Path]:
    """Write a page about evaluated runs, with its tables as Markdown and LaTeX beside it; returns the files.

    Parameters
    ----------
    runs
        Folders with the results of `earmark evaluate`, systems made of them, or their comparison.
    out
        The HTML file; missing folders are created.
    data
        The data set with the evaluated clips, for durations and examples of errors; by default the path that the
        evaluation recorded.
    template, extra
        A template that extends `runs.html.j2`, and values for it; `tables` and `drawings` are added to the page's.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"{out}: expected the name of an HTML file, ending in .html")
    comparison = runs if isinstance(runs, Comparison) else _compare(runs)
    records = [results.read_run(saved, entry.name) for entry in comparison.entries for saved in entry.evaluations]
    material = _open_material(records[0].saved, data)
    on_progress(Progress("report", 1, _STEPS, "steps"))
    tables, drawings = _results(comparison, material)
    on_progress(Progress("report", 2, _STEPS, "steps"))
    mistakes, mistakes_note = _show_mistakes(comparison, records, material)
    on_progress(Progress("report", 3, _STEPS, "steps"))
    extra = extra or {}
    values = {
        "title": title or _title(comparison),
        "comparison": comparison,
        "runs": records,
        "lead": fill_text("lead.txt.j2", comparison=comparison, runs=records),
        "verdict": fill_text("verdict.txt.j2", comparison=comparison, untested=None),
        "notes": _notes(comparison, records),
        "learning": _learning_curves(records),
        "threshold": figures.common_threshold(comparison.entries),
        "example": _alpha_example(comparison, material),
        "mistakes": mistakes,
        "mistakes_note": mistakes_note,
        "commands": results.commands(records, out),
        **extra,
        "tables": {**tables, **extra.get("tables", {})},
        "drawings": {**drawings, **extra.get("drawings", {})},
    }
    written = [write_text(out, fill_page(template, **values))]
    shown = {"title": values["title"], "text": values["verdict"]}
    written += write_tables(out.with_suffix(""), values["tables"].values(), latex_intervals=False, **shown)
    on_progress(Progress("report", _STEPS, _STEPS, "steps"))
    return written


def _notes(comparison: Comparison, runs: Sequence[Run]) -> list[str]:
    notes = [*comparison.notes, *(str(note) for run in runs for note in run.saved.scores.get("notes") or ())]
    return list(dict.fromkeys(notes))


def _compare(runs: Iterable[Path | Entry]) -> Comparison:
    given = list(runs)
    entries = [item for item in given if isinstance(item, Entry)]
    return compare_entries([*entries, *group_runs(item for item in given if isinstance(item, Path))])


def _title(comparison: Comparison) -> str:
    names = [entry.name for entry in comparison.entries]
    systems = listed(names) if len(names) <= _FEW else counted(len(names), "model")
    return f"{systems}, evaluated on {counted(comparison.clips, 'clip')}"


@dataclass(frozen=True)
class _Material:
    """The evaluated clips and their reference, as far as they are available."""

    labels: LabelTable | None = None
    """The true reference, for mistakes."""
    reference: LabelTable | None = None
    """What the scores refer to: the same, or the authors' reference."""
    clips: dict[str, Clip] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    problem: str = ""

    def activity(self) -> dict[str, tuple[float, float]]:
        """Active time of classes; empty if unknown."""
        return {} if self.labels is None else results.active_shares(self.labels, self.durations)


def _open_material(saved: Evaluation, data: str | None) -> _Material:
    """The evaluated clips with their reference, or the reason why they are not available."""
    scores = saved.scores
    source = data or scores.get("data")
    if not source:
        return _Material(problem="the evaluation did not record its data")
    try:
        collection = open_data(source, scores.get("split"))
        kind = str(scores.get("reference", "data"))
        labels = collection.labels if kind in ("data", "authors") else read_labels(kind)
        names = list(saved.static_counts.filenames)
        truth = reference = fit_reference(labels, names, scores["classes"]).table
        if kind == "authors":
            reference = fit_reference(authors_reference(labels), names, scores["classes"]).table
        durations = {name: clip.duration for name, clip in saved.probabilities().items() if name in truth.filenames}
    except (EarmarkError, OSError) as error:
        return _Material(problem=_one_line(error))
    return _Material(truth, reference, {clip.filename: clip for clip in collection.clips}, durations)


def _results(comparison: Comparison, material: _Material) -> tuple[dict[str, Table], dict[str, Markup]]:
    """Tables and figures of the page, by name."""
    entries = comparison.entries
    counts = entries[0].evaluations[0].static_counts
    score = "Segment F1" if comparison.statistic == "dynamic.f1" else "Clip F1"
    f1 = {entry.name: results.class_f1(entry, level=comparison.level) for entry in entries}
    tables = {"models": comparison.table(), "classes": class_table(f1, counts, score)}
    drawn = {"classes": figures.class_figure(f1, counts.classes)}
    alphas = results.learned_alphas(entries)
    if alphas:
        tables["alphas"] = alpha_table(alphas, material.activity(), counts.classes, results.frame_sizes(entries))
        drawn["alphas"] = plots.learned_alpha(alphas)
    if material.labels is not None and material.reference is not None:
        drawn["durations"] = figures.duration_figure(material.labels, material.durations)
        drawn["curves"] = figures.curve_figure(entries, material.reference, figures.common_threshold(entries))
    return tables, {
        name: inline_svg(figure, figures.DESCRIPTIONS[name]) for name, figure in drawn.items() if figure is not None
    }


def _learning_curves(runs: Sequence[Run]) -> dict[str, Markup]:
    """Learning curves by the system and folder of the run, for runs with a log."""
    drawings = {}
    for run in runs:
        name = f"{run.system}: {run.saved.folder}"
        figure = figures.learning_figure(run.saved.folder / "log.jsonl", run.saved.static_counts.classes)
        if figure is not None:
            drawings[name] = inline_svg(figure, f"Learning curves of {name}")
    return drawings


def _alpha_example(comparison: Comparison, material: _Material) -> dict[str, Any] | None:
    """The class with the greatest alpha, of the best system that has any."""
    alphas = results.learned_alphas(comparison.entries)
    if not alphas:
        return None
    value = {name: scores[comparison.statistic].value for name, scores in comparison.values.items()}
    name = max(alphas, key=lambda name: value[name] if value[name] == value[name] else -1.0)
    label = max(alphas[name], key=alphas[name].__getitem__)
    frame = results.frame_sizes([entry for entry in comparison.entries if entry.name == name]).get(name)
    return {
        "system": name,
        "label": label,
        "alpha": alphas[name][label],
        "needs": required_activity(alphas[name][label], frame),
        "activity": material.activity().get(label),
    }


def _show_mistakes(
    comparison: Comparison, runs: Sequence[Run], material: _Material
) -> tuple[list[dict[str, Any]], str]:
    """The worst mistakes of the best system's first run, and a note if there are none or not all."""
    run = next(run for run in runs if run.system == comparison.best)
    if material.labels is None:
        return [], f"The clips are not available: {material.problem}. Give their location with --data."
    if run.saved.dynamic_counts is None:
        return [], "The reference has no event times, so detected events cannot be checked."
    dense = results.dense_probabilities(run.saved)
    if not dense or "features" not in run.about:
        return [], "The model's probabilities are not available: evaluate the run again, beside its model file."
    features = FeatureConfig.from_dict(run.about["features"])
    estimate = run.saved.estimate()
    p = {name: dense[name] for name in material.labels.filenames if name in dense and name in material.clips}
    shown: list[dict[str, Any]] = []
    for mistake in worst_mistakes(material.labels, estimate, p, features.hop):
        clip, name = material.clips[mistake.filename], comparison.best
        try:
            shown.append(show_mistake(mistake, clip, features, material.labels, estimate, p[clip.filename], name))
        except (EarmarkError, OSError) as error:
            return shown, f"The audio could not be read: {_one_line(error)}"
    return shown, "" if shown else "None: every detected event overlaps a reference event of its class, and vice versa."


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
