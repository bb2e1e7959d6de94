"""The page of runs: what was trained on what, which model is best, by how much, where it fails, and how to repeat it.

One HTML file that needs nothing else, and the same tables as Markdown and LaTeX beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from earmark.annotations import LabelTable
from earmark.datasets import Clip, open_data
from earmark.errors import ArgumentError, EarmarkError
from earmark.evaluation.authors import authors_reference
from earmark.evaluation.comparison import Comparison, Entry, compare_entries, group_runs
from earmark.evaluation.references import fit_reference
from earmark.evaluation.result import Evaluation
from earmark.evaluation.statistics import Interval
from earmark.features import FeatureConfig
from earmark.files import make_folder, written_whole
from earmark.formats import read_labels
from earmark.report import figures, results, words
from earmark.report.figures import Drawing
from earmark.report.inline import fill_template
from earmark.report.mistakes import show_mistake, worst_mistakes
from earmark.report.tables import Table, comparison_table
from earmark.report.words import Run

__all__ = ["Extra", "write_report"]

_PARTS = 4  # of the work, for progress


@dataclass(frozen=True)
class Extra:
    """What a page says besides: a template that extends `runs.html`, tables and figures that it adds or that stand in
    place of those of the same name, and values for the template, to which the same goes."""

    template: str = "runs.html"
    tables: Mapping[str, Table] = field(default_factory=dict)
    drawings: Mapping[str, Drawing] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def write_report(
    runs: Iterable[Path | Entry] | Comparison,
    out: Path,
    *,
    data: str | None = None,
    title: str | None = None,
    extra: Extra | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write a page about judged runs, and its tables as Markdown and LaTeX beside it; returns what was written.

    Parameters
    ----------
    runs
        Folders that `evaluate` left its scores in, or entries made of them; or what they were compared to be.
    out
        The HTML file; its folder is made if need be.
    data
        Where the clips are, for durations, mistakes and sound; by default where they were when the runs were judged.
    progress
        Told how many parts of the work are done, and how many there are.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ArgumentError(f"{out}: a report is an HTML file; give it a name that ends in .html")
    tell = progress or (lambda done, total: None)
    tell(0, _PARTS)
    comparison = runs if isinstance(runs, Comparison) else _compared(runs)
    extra = extra or Extra()
    own = [words.read_run(saved, entry.name) for entry in comparison.entries for saved in entry.evaluations]
    material = _open_material(own[0].saved, data)
    tell(1, _PARTS)
    tables, drawings = _results(comparison, own, material)
    tables, drawings = {**tables, **extra.tables}, {**drawings, **extra.drawings}
    tell(2, _PARTS)
    mistakes, why_not = _show_mistakes(comparison, own, material)
    tell(3, _PARTS)
    heading = title or words.heading(comparison)
    values = {
        "title": heading,
        "version": version("earmark"),
        "date": f"{(today := date.today()).day} {today:%B %Y}",
        "lead": words.lead(comparison, own),
        "verdict": words.verdict(comparison),
        "achievement": words.achievement(comparison),
        "facts": words.facts(comparison, own),
        "lines": comparison.lines,
        "notes": _notes(comparison, own),
        "tables": tables,
        "drawings": drawings,
        "alpha_example": _alpha_example(comparison, material),
        "mistakes": mistakes,
        "mistakes_of": comparison.best,
        "why_not": why_not,
        "runs": own,
        "commands": words.commands(own, out),
        **extra.values,
    }
    make_folder(out.parent)
    texts = {
        out: str(fill_template(extra.template, **values)),
        out.with_suffix(".md"): _to_markdown(heading, str(values["verdict"]), tables.values()),
        out.with_suffix(".tex"): _to_latex(heading, tables.values()),
    }
    for path, text in texts.items():
        with written_whole(path) as draft:
            draft.write_text(text, encoding="utf-8", errors="replace")
    tell(_PARTS, _PARTS)
    return list(texts)


def _compared(runs: Iterable[Path | Entry]) -> Comparison:
    given = list(runs)
    entries = [item for item in given if isinstance(item, Entry)]
    return compare_entries([*entries, *group_runs(item for item in given if isinstance(item, Path))])


@dataclass(frozen=True)
class _Material:
    """The clips that were judged, as far as they can be had."""

    labels: LabelTable | None = None
    """The true reference, in which mistakes are looked for."""
    judged_by: LabelTable | None = None
    """What the scores are of: the same, or the authors' reference."""
    clips: dict[str, Clip] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    why_not: str = ""

    def heard(self) -> dict[str, tuple[float, float]]:
        """How long classes are heard; empty where nobody knows."""
        return {} if self.labels is None else results.heard_shares(self.labels, self.durations)


def _open_material(saved: Evaluation, data: str | None) -> _Material:
    """The judged clips with their reference; or why they cannot be had."""
    scores = saved.scores
    source = data or scores.get("data")
    if not source:
        return _Material(why_not="it is not recorded which data they were judged on")
    try:
        found = open_data(source, scores.get("split"))
        told = str(scores.get("reference", "data"))
        labels = found.labels if told in ("data", "authors") else read_labels(told)
        names = list(saved.static_counts.filenames)
        reference = judged_by = fit_reference(labels, names, scores["classes"]).table
        if told == "authors":
            judged_by = fit_reference(authors_reference(labels), names, scores["classes"]).table
        durations = {name: own.duration for name, own in saved.probabilities().items() if name in reference.filenames}
    except (EarmarkError, OSError) as error:
        return _Material(why_not=" ".join(str(error).split()))
    return _Material(reference, judged_by, {clip.filename: clip for clip in found.clips}, durations)


def _results(
    comparison: Comparison, runs: Sequence[Run], material: _Material
) -> tuple[dict[str, Table], dict[str, Any]]:
    """Tables and figures of the page, by name."""
    entries, statistic = comparison.entries, comparison.statistic
    counts = entries[0].evaluations[0].static_counts
    what = "F1 of segments" if statistic == "dynamic.f1" else "F1 of clips"
    scores: dict[str, Interval] = {e.name: results.class_f1(e, level=comparison.level) for e in entries}
    tables = {"models": comparison_table(comparison), "classes": results.class_table(scores, counts, what)}
    alphas = results.learned_alphas(entries)
    found: dict[str, Drawing | None] = {"classes": figures.class_figure(scores, counts.classes)}
    if alphas:
        tables["alphas"] = results.alpha_table(alphas, material.heard(), counts.classes, results.moments(entries))
        found["alphas"] = figures.alpha_figure(alphas)
    if material.labels is not None and material.judged_by is not None:
        found["durations"] = figures.duration_figure(material.labels, material.durations)
        found["curves"] = figures.curve_figure(entries, material.judged_by)
    logs = [(run, run.saved.folder / "log.jsonl") for run in runs]
    learning = [figures.learning_figure(log, counts.classes, f"{run.entry}: {log.parent}") for run, log in logs]
    drawings = {name: drawing for name, drawing in found.items() if drawing is not None}
    return tables, {**drawings, "learning": [drawing for drawing in learning if drawing is not None]}


def _alpha_example(comparison: Comparison, material: _Material) -> str:
    """The class with the greatest alpha of the best model that has any, in words."""
    alphas = results.learned_alphas(comparison.entries)
    if not alphas:
        return ""
    value = {name: own[comparison.statistic].value for name, own in comparison.values.items()}
    name = max(alphas, key=lambda name: value[name] if value[name] == value[name] else -1.0)
    label = max(alphas[name], key=alphas[name].__getitem__)
    moment = results.moments([entry for entry in comparison.entries if entry.name == name]).get(name)
    said = words.alpha_sentence(label, alphas[name][label], material.heard().get(label), moment)
    return f"An example from {name} is {said}"


def _show_mistakes(
    comparison: Comparison, runs: Sequence[Run], material: _Material
) -> tuple[list[dict[str, Any]], str]:
    """Worst mistakes of the best model's first run; or, in one line, why there are none to show."""
    run = next(run for run in runs if run.entry == comparison.best)
    if material.labels is None:
        return [], f"The clips are needed for this: {material.why_not}. Say where they are with --data."
    if run.saved.dynamic_counts is None:
        return [], "The reference does not say when sounds are heard, so there is nothing to hold events against."
    dense = results.dense_probabilities(run.saved)
    if not dense or "features" not in run.about:
        return [], "Probabilities of the model are needed for this: evaluate the run again, beside its model file."
    features = FeatureConfig.from_dict(run.about["features"])
    estimate = run.saved.estimate()
    p = {name: dense[name] for name in material.labels.filenames if name in dense and name in material.clips}
    shown = []
    for mistake in worst_mistakes(material.labels, estimate, p, features.hop):
        clip = material.clips[mistake.filename]
        try:
            shown.append(
                show_mistake(mistake, clip, features, material.labels, estimate, p[clip.filename], comparison.best)
            )
        except (EarmarkError, OSError) as error:
            return shown, f"Sound could not be read: {' '.join(str(error).split())}"
    return shown, "" if shown else "It makes none: every event that it found is there, and it found every one."


def _notes(comparison: Comparison, runs: Sequence[Run]) -> list[str]:
    """What one should know before believing the numbers, each thing once."""
    told = [*comparison.notes, *(str(note) for run in runs for note in run.saved.scores.get("notes") or ())]
    return list(dict.fromkeys(told))


def _to_markdown(heading: str, verdict: str, tables: Iterable[Table]) -> str:
    parts = [f"# {heading}", verdict]
    for table in tables:
        parts += [f"## {table.caption}", table.to_markdown(intervals=True), table.note]
    return "\n\n".join(filter(None, parts)) + "\n"


def _to_latex(heading: str, tables: Iterable[Table]) -> str:
    parts = [f"% {' '.join(heading.split())}", "% needs: \\usepackage{booktabs}"]
    for table in tables:
        parts += ["", f"% {table.caption}. {table.note}".rstrip(), table.to_latex()]
    return "\n".join(parts) + "\n"
