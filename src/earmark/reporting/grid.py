"""The report of an experiment grid: tables, figures and a page, from saved evaluations alone.

OUT/results.csv                 every score of every run
OUT/table-EVALUATION.md, .tex   systems against scores, with intervals and tests
OUT/published.md, .tex          our scores beside the paper's
OUT/figures/                    F1 and alpha by class, F1 beside the paper's; if the data are available, durations of
                                events and the output for one clip; as PNG and SVG
OUT/report.html, .md, .tex      all of it on one page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from earmark import plots
from earmark.datasets import Collection
from earmark.encoders import Features
from earmark.errors import DataError, EarmarkError
from earmark.evaluation.base import Floats
from earmark.evaluation.comparison import Comparison, Entry, compare_entries
from earmark.evaluation.statistics import Interval
from earmark.experiment.cells import changed_settings, data_of
from earmark.experiment.grid import Grid, Published
from earmark.experiment.results import Row, by_fold, by_system, describe_data, write_results
from earmark.files import make_folder, remove_drafts
from earmark.ownership import owned
from earmark.plots.clip import clip_figure, log_mel, spectrogram_config, within
from earmark.plots.scores import class_figure
from earmark.pooling import ConstrainedAutoPool, create_pool
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.reporting.grid_tables import (
    evaluation_table,
    fold_table,
    mean_interval,
    mean_scores,
    published_class_table,
    published_tables,
)
from earmark.reporting.pages import fill_page, fill_text, inline_svg, write_tables, write_text
from earmark.reporting.results import bag_frames, class_f1, dense_probabilities, learned_alphas
from earmark.reporting.runs import DESCRIPTIONS, write_report
from earmark.settings import Settings
from earmark.tables import Table
from earmark.timing import span_to_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FILES = {  # of figures
    "classes": "f1-by-class",
    "alphas": "learned-alpha",
    "durations": "event-durations",
    "example": "example",
    "published": "published-f1",
}
_LONGEST = 30.0  # seconds shown of a clip


def write_grid_report(
    grid: Grid,
    rows: Sequence[Row],
    out: Path,
    *,
    command: str = "",
    force: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> list[Path]:
    """Write tables, figures and the page of finished runs; returns the files.

    `rows` are from `earmark.experiment.results.gather`; `command` is the command that reproduces the results; `force`
    replaces files that earmark did not write, or that were edited since.
    """
    if not rows:
        raise DataError(f"{out}: no run of this grid is finished")
    with owned(make_folder(out), force=force):
        drawn = [out / "figures" / f"{name}{end}" for name in _FILES.values() for end in (".png", ".svg")]
        remove_drafts([out / "report.html", out / "results.csv", *drawn])  # of a process that was killed
        return _write_grid_report(grid, rows, out, command, on_progress)


def _write_grid_report(grid: Grid, rows: Sequence[Row], out: Path, command: str, on_progress: OnProgress) -> list[Path]:
    steps = len(grid.evaluations) + 2
    written = [out / "results.csv"]
    write_results(rows, written[0])
    evaluations: list[_Evaluation] = []
    for name in grid.evaluations:
        on_progress(Progress("report", len(evaluations), steps, "steps"))
        evaluations.append(_evaluation(grid, rows, name))
        written += write_tables(out / f"table-{name}", [evaluations[-1].table])
    on_progress(Progress("report", steps - 2, steps, "steps"))
    intervals = {e.name: e.intervals for e in evaluations}
    published = published_tables(grid, rows, intervals[grid.published.evaluation] if grid.published else {})
    by_class = published_class_table(grid, rows)
    if published:
        written += write_tables(out / "published", [*published, *([by_class] if by_class else [])])
    drawings = {}
    for name, figure in _figures(grid, rows, evaluations).items():
        written += plots.save(figure, out / "figures" / _FILES[name])
        drawings[name] = inline_svg(figure, DESCRIPTIONS[name])
    on_progress(Progress("report", steps - 1, steps, "steps"))
    first = evaluations[0]
    values = {
        "title": grid.title,
        "verdict": first.verdict,
        "published": published,
        "published_classes": by_class,
        "others": [evaluation.table for evaluation in evaluations[1:]],
        "grid": grid,
        "data": describe_data(grid, out),
        "skipped": max(len(row.saved().scores.get("skipped") or ()) for row in rows),
        "unfinished": _unfinished(grid, rows),
        "changed": _changed(rows),
        "commands": [command] if command else [],
        "mistakes_note": "",
        "tables": {"models": first.table},
        "drawings": drawings,
    }
    page = out / "report.html"
    if first.comparison is None:  # folds have different clips
        written.append(write_text(page, fill_page("folds.html.j2", **values)))
    else:
        written += write_report(first.comparison, page, data=grid.source, extra=values)
    on_progress(Progress("report", steps, steps, "steps"))
    return written


@dataclass(frozen=True)
class _Evaluation:
    """One evaluation of a grid's systems."""

    name: str
    entries: tuple[Entry, ...]
    table: Table
    intervals: Mapping[str, tuple[float, float]]
    """Of dynamic F1, by system."""
    comparison: Comparison | None = None
    """All systems, with tests among those trained without event times; None with folds, whose clips differ."""
    verdict: str = ""


def _evaluation(grid: Grid, rows: Sequence[Row], name: str) -> _Evaluation:
    rows = [row for row in rows if row.evaluation == name]
    systems = by_system(sorted(rows, key=lambda row: not row.cell.is_weak))
    entries = tuple(Entry(system, tuple(row.saved() for row in own)) for system, own in systems.items())
    if grid.folds:
        intervals = {system: mean_interval([*by_fold(own, "dynamic_f1").values()]) for system, own in systems.items()}
        return _Evaluation(name, entries, fold_table(grid, rows, name), intervals)
    weak = [entry for entry in entries if systems[entry.name][0].cell.is_weak]
    strong = [entry for entry in entries if not systems[entry.name][0].cell.is_weak]
    tested = compare_entries(weak or strong)
    comparison, untested = tested, None
    if weak and strong:
        best = next(entry for entry in weak if entry.name == tested.best)
        untested = compare_entries([best, *strong])
        comparison = _joined(tested, untested)
    f1 = {system: values["dynamic.f1"] for system, values in comparison.values.items() if "dynamic.f1" in values}
    intervals = {system: (value.low, value.high) for system, value in f1.items()}
    table = evaluation_table(tested, untested, name, grid.evaluations[name])
    verdict = fill_text("verdict.txt.j2", comparison=tested, untested=untested)
    return _Evaluation(name, entries, table, intervals, comparison, verdict)


def _joined(tested: Comparison, untested: Comparison) -> Comparison:
    """The comparison of systems trained without event times, with the others appended."""
    strong = tuple(entry for entry in untested.entries if entry.name != tested.best)
    return replace(
        tested,
        entries=(*tested.entries, *strong),
        values={**tested.values, **{entry.name: untested.values[entry.name] for entry in strong}},
        lines=(*tested.lines, *(verdict.text for verdict in untested.verdicts)),
        notes=tuple(dict.fromkeys((*tested.notes, *untested.notes))),
    )


def _unfinished(grid: Grid, rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    """Finished and planned runs of each system that has unfinished ones."""
    done = {row.cell.name for row in rows}
    planned = Counter(cell.system for cell in grid.cells)
    finished = Counter(cell.system for cell in grid.cells if cell.name in done)
    return {system: (finished[system], n) for system, n in planned.items() if finished[system] < n}


def _changed(rows: Iterable[Row]) -> dict[str, list[str]]:
    """Cells that were trained with settings other than the grid's, by their changes."""
    groups: dict[str, list[str]] = {}
    for cell, row in {row.cell.name: row for row in rows}.items():
        changes = changed_settings(row.folder.parent, row.cell)
        if changes:
            text = ", ".join(f"{key} {then} instead of {now}" for key, (then, now) in changes.items())
            groups.setdefault(text, []).append(cell)
    return groups


def _figures(grid: Grid, rows: Sequence[Row], evaluations: Sequence[_Evaluation]) -> dict[str, Figure]:
    """F1 and alpha by class of the first evaluation, F1 beside the published one, and figures of the data."""
    first = evaluations[0]
    f1 = {entry.name: _fold_f1(entry) if grid.folds else class_f1(entry) for entry in first.entries}
    figures = {"classes": class_figure(f1, first.entries[0].evaluations[0].static_counts.classes)}
    alphas = learned_alphas(first.entries)
    if alphas:
        cells = {system: own[0].cell for system, own in by_system(rows).items()}
        bounds = {name: _alpha_bound(cells[name].settings, len(alpha)) for name, alpha in alphas.items()}
        known = {name: bound for name, bound in bounds.items() if bound is not None}
        figures["alphas"] = plots.learned_alpha(alphas, known)
    if grid.published and any(evaluation.intervals for evaluation in evaluations):
        figures["published"] = _published_figure(grid.published, rows, evaluations)
    with suppress(DataError):  # of the paper, Figs. 3 to 5 and 9, if the data are available
        collection = data_of(grid.source, 0 if grid.folds else None)
        settings = grid.cells[0].settings
        figures["durations"] = plots.event_durations(collection.labels, clip_duration=settings.training.patch)
        figures["example"] = _example(collection, first, settings.features)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _example(collection: Collection, evaluation: _Evaluation, features: Features) -> Figure | None:
    """The clip with the most classes, the first by name; None without probabilities, or if it cannot be read."""
    best = evaluation.comparison.best if evaluation.comparison else evaluation.entries[0].name
    saved = next(entry for entry in evaluation.entries if entry.name == best).evaluations[0]
    p = dense_probabilities(saved)
    clips = {clip.filename: clip for clip in collection.clips if clip.filename in p}
    if not clips:
        return None
    labels = collection.labels
    name = max(sorted(clips), key=lambda name: len({row.label for row in labels.of(name) if row.present}))
    try:
        samples = clips[name].read(features.rate)[: round(_LONGEST * features.rate)]
    except EarmarkError:
        return None
    duration, hop = len(samples) / features.rate, float(saved.scores["grid"]["hop"])
    reference, likelihoods = within(labels.of(name), 0.0, duration), p[name][: span_to_frames(0.0, duration, hop)[1]]
    drawn = spectrogram_config(features)
    spectrogram = log_mel(samples, drawn)
    classes = saved.scores["classes"]
    return clip_figure(spectrogram, drawn, reference, {best: likelihoods}, classes, duration=duration, p_hop=hop)


def _fold_f1(entry: Entry) -> Interval[Floats]:
    """Dynamic F1 (static without event times) of each class, with intervals over folds."""
    parts = [saved.scores["dynamic"] or saved.scores["static"]["maximum"] for saved in entry.evaluations]
    f1 = [[part["per_class"][label]["f1"] for part in parts] for label in entry.evaluations[0].static_counts.classes]
    known = [[value for value in folds if np.isfinite(value)] for folds in f1]
    low, high = np.array([mean_interval(folds) for folds in known]).T
    return Interval(np.array([np.mean(folds) if folds else np.nan for folds in known]), low, high)


def _alpha_bound(settings: Settings, n_classes: int) -> float | None:
    """The largest alpha that CAP allows for its training bags; None for other operators, or if classes differ in it."""
    options = dict(settings.pool)
    pool = create_pool(options.pop("name"), n_classes, **options)
    if not isinstance(pool, ConstrainedAutoPool):
        return None
    with torch.no_grad():
        pool.train()(torch.zeros(1, bag_frames(settings), n_classes))  # the bound depends on the longest bag so far
        pool.alpha.fill_(torch.inf)
    pool.project()
    bounds = set(pool.alpha.tolist())
    return bounds.pop() if len(bounds) == 1 else None


def _published_figure(published: Published, rows: Sequence[Row], evaluations: Sequence[_Evaluation]) -> Figure:
    """F1 of each published system: the paper's, ours evaluated like the paper's, then our other evaluations."""
    systems = by_system(row for row in rows if row.evaluation == published.evaluation)
    paper = {name: published.scores.get(own[0].cell.system) for name, own in systems.items()}
    values = {published.table: {name: float(scores[3]) for name, scores in paper.items() if scores is not None}}
    bars = {}
    for evaluation in sorted(evaluations, key=lambda evaluation: evaluation.name != published.evaluation):
        ours = by_system(row for row in rows if row.evaluation == evaluation.name)
        name, intervals = f"ours, {evaluation.name}", evaluation.intervals
        values[name] = {system: mean_scores(ours[system])["dynamic_f1"] for system in values[published.table]}
        bars[name] = {system: intervals[system] for system in values[name] if np.isfinite(intervals[system]).all()}
    return plots.f1_by_class(values, bars)
