"""The report of an experiment grid: tables, figures and a page, from saved evaluations alone.

OUT/results.csv                 every score of every run
OUT/table-EVALUATION.md, .tex   systems against scores, with intervals and tests
OUT/summary-EVALUATION.md, .tex dynamic, static and event F1 and PSDS, of evaluations with PSDS
OUT/published.md, .tex          our scores compared with the paper's
OUT/figures/                    F1 and alpha by class, F1 compared with the paper's, the network; if the data are
                                available, durations of events and the output for one clip; as PNG and SVG
OUT/report.html, .md, .tex      all of it on one page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from earmark import plots
from earmark.datasets import Collection
from earmark.detection.detector import load
from earmark.errors import DataError, EarmarkError
from earmark.evaluation.base import Floats
from earmark.evaluation.comparison import Comparison, compare_entries
from earmark.evaluation.statistics import Interval, bootstrap
from earmark.evaluation.systems import System
from earmark.experiment.cells import changed_settings, data_of
from earmark.experiment.grid import Grid, Published
from earmark.experiment.results import Row, by_fold, by_system, describe_data, write_results
from earmark.files import make_folder, remove_drafts
from earmark.networks import create_network
from earmark.ownership import owned
from earmark.plots.clip import clip_figure, log_mel, spectrogram_config, within
from earmark.plots.scores import class_figure
from earmark.pooling import ConstrainedAutoPool, ConstrainedLinearPool
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.reporting.grid_tables import (
    evaluation_table,
    fold_table,
    mean_interval,
    mean_scores,
    published_class_table,
    published_tables,
    summary_table,
)
from earmark.reporting.pages import fill_page, fill_text, inline_svg, write_page, write_tables
from earmark.reporting.results import at_zero, bag_frames, class_f1, dense_probabilities, learned_alphas
from earmark.reporting.runs import DESCRIPTIONS, write_report
from earmark.settings import Settings
from earmark.tables import Table
from earmark.timing import span_to_frames
from earmark.training.loop import create_detector
from earmark.training.run import split_for_training

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FILES = {  # of figures
    "classes": "f1-by-class",
    "alphas": "learned-alpha",
    "durations": "event-durations",
    "example": "example",
    "published": "published-f1",
    "network": "network",
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
        if summary := evaluations[-1].summary:
            written += write_tables(out / f"summary-{name}", [summary])
    on_progress(Progress("report", steps - 2, steps, "steps"))
    intervals = {e.name: e.intervals for e in evaluations}
    published = published_tables(grid, rows, intervals[grid.published.evaluation] if grid.published else {})
    by_class = published_class_table(grid, rows)
    if published:
        written += write_tables(out / "published", [*published, *([by_class] if by_class else [])])
    drawings = {}
    example = _example(grid, rows, evaluations[0])
    for name, figure in _figures(grid, rows, evaluations, example).items():
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
        "shown": example,
    }
    page = out / "report.html"
    if first.comparison is None:  # folds have different clips
        written.append(write_page(page, fill_page("folds.html.j2", **values)))
    else:
        written += write_report(first.comparison, page, data=grid.source, extra=values)
    on_progress(Progress("report", steps, steps, "steps"))
    return written


@dataclass(frozen=True)
class _Evaluation:
    """One evaluation of a grid's systems."""

    name: str
    entries: tuple[System, ...]
    table: Table
    intervals: Mapping[str, tuple[float, float]]
    """Of dynamic F1, by system."""
    comparison: Comparison | None = None
    """All systems, with tests among those trained without event times; None with folds, whose clips differ."""
    summary: Table | None = None
    """The commonly used scores, if PSDS is among them."""
    verdict: str = ""


def _evaluation(grid: Grid, rows: Sequence[Row], name: str) -> _Evaluation:
    rows = [row for row in rows if row.evaluation == name]
    systems = by_system(sorted(rows, key=lambda row: not row.cell.is_weak))
    entries = tuple(System(system, tuple(row.saved() for row in runs)) for system, runs in systems.items())
    if grid.folds:
        intervals = {system: mean_interval([*by_fold(runs, "dynamic_f1").values()]) for system, runs in systems.items()}
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
    spec = grid.evaluations[name]
    table = evaluation_table(tested, untested, name, spec)
    summary = summary_table(tested, untested, rows, name) if spec.with_psds else None
    verdict = fill_text("verdict.txt.j2", comparison=tested, untested=untested)
    return _Evaluation(name, entries, table, intervals, comparison, summary, verdict)


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
    """Names of cells that were trained with settings other than the grid's, by the differences."""
    groups: dict[str, list[str]] = {}
    for cell, row in {row.cell.name: row for row in rows}.items():
        changes = changed_settings(row.config, row.cell)
        if changes:
            text = ", ".join(f"{key} {then} instead of {now}" for key, (then, now) in changes.items())
            groups.setdefault(text, []).append(cell)
    return groups


def _figures(
    grid: Grid, rows: Sequence[Row], evaluations: Sequence[_Evaluation], example: _Example | None
) -> dict[str, Figure]:
    """F1 and alpha by class of the first evaluation, F1 compared with the published one, the network, and the data."""
    first = evaluations[0]
    f1 = {entry.name: _fold_f1(entry) if grid.folds else class_f1(entry) for entry in first.entries}
    classes = first.entries[0].evaluations[0].static_counts.classes
    figures = {"classes": class_figure(f1, classes)}
    alphas = learned_alphas(first.entries)
    cells = {system: runs[0].cell for system, runs in by_system(rows).items()}
    if alphas:
        bounds = {name: _alpha_bound(cells[name].settings, len(alpha)) for name, alpha in alphas.items()}
        known = {name: bound for name, bound in bounds.items() if bound is not None}
        figures["alphas"] = plots.learned_alpha(alphas, known, at_zero=at_zero(first.entries))
    if grid.published and any(evaluation.intervals for evaluation in evaluations):
        figures["published"] = _published_figure(grid, grid.published, rows, evaluations)
    figures["network"] = _network(next(iter(cells.values())).settings, len(classes))
    with suppress(DataError):  # if the data are available, and have times
        figures["durations"] = _durations(grid)
    figures["example"] = example.figure if example else None
    return {name: figure for name, figure in figures.items() if figure is not None}


def _network(settings: Settings, n_classes: int) -> Figure | None:
    """Fig. 6; None for other networks than the paper's."""
    options = dict(settings.network)
    name = options.pop("name")
    if name != "cnn":
        return None
    with torch.device("meta"):
        network = create_network(name, settings.features.n_bands, **options)
    frames = settings.features.frames(round(settings.training.patch * settings.features.rate))
    return plots.network_diagram(network, frames, n_classes)


def _durations(grid: Grid) -> Figure:
    """Of test clips, as in Figs. 3 and 4; with folds of all, logarithmic where recordings are long, as in Fig. 5."""
    collection = data_of(grid.source, 0 if grid.folds else None)
    labels = (collection if grid.folds or "test" not in collection.splits else collection.split("test")).labels
    patch = grid.cells[0].settings.training.patch
    longest = max((row.offset for row in labels if row.offset is not None), default=0.0)
    return plots.event_durations(labels, clip_duration=patch, log=longest > 2 * patch)


@dataclass(frozen=True)
class _Example:
    """The output of one system for one clip."""

    figure: Figure
    system: str
    split: str
    filename: str


def _example(grid: Grid, rows: Sequence[Row], evaluation: _Evaluation) -> _Example | None:
    """The output of the grid's example system, or else of the best, for the clip with the most classes.

    As in Fig. 9 it is a validation clip, if the model file still exists; otherwise one with saved probabilities. None
    without either, or if the clip cannot be read.
    """
    rows = [row for row in rows if row.evaluation == evaluation.name]
    row = next((row for row in rows if row.cell.system == grid.example), None) or _best_row(rows, evaluation)
    saved = row.saved()
    align = saved.scores["grid"]["align"]
    try:
        collection = data_of(grid.source, row.cell.fold)
        if (row.folder.parent / "model.safetensors").is_file():
            part = split_for_training(collection)[1]
            name = _most_classes(part)
            scores, _ = load(row.folder.parent).score_clips(part.select([name]).clips)
            probabilities = {clip.filename: clip.dense(align) for clip in scores}
        else:
            probabilities = dense_probabilities(saved)
            part = collection.select(clip.filename for clip in collection.clips if clip.filename in probabilities)
            name = _most_classes(part)
        figure = _draw_example(part.select([name]), row, probabilities[name], float(saved.scores["grid"]["hop"]))
    except (EarmarkError, LookupError):  # no data, no clip
        return None
    return _Example(figure, row.cell.system, next(clip.split for clip in part.clips if clip.filename == name), name)


def _best_row(rows: Sequence[Row], evaluation: _Evaluation) -> Row:
    """A run of the best system trained without event times, by dynamic F1 over all of its runs."""
    systems = by_system([row for row in rows if row.cell.is_weak] or rows)
    if evaluation.comparison is not None and evaluation.comparison.best in systems:
        return systems[evaluation.comparison.best][0]
    return max(systems.values(), key=lambda runs: np.nan_to_num(mean_scores(runs)["dynamic_f1"]))[0]


def _most_classes(part: Collection) -> str:
    """The clip with the most classes, the first by name."""
    names = sorted(clip.filename for clip in part.clips)
    if not names:
        raise DataError("expected at least one clip, got none")
    return max(names, key=lambda name: len({row.label for row in part.labels.of(name) if row.present}))


def _draw_example(part: Collection, row: Row, p: npt.NDArray[np.floating[Any]], hop: float) -> Figure:
    """Spectrogram, reference and probabilities p (frames, classes) of the only clip of `part`."""
    (clip,), features = part.clips, row.cell.settings.features
    samples = clip.read(features.rate)[: round(_LONGEST * features.rate)]
    duration = len(samples) / features.rate
    reference = within(part.labels.of(clip.filename), 0.0, duration)
    shown = p[: span_to_frames(0.0, duration, hop)[1]]
    drawn = spectrogram_config(features)
    classes = row.saved().scores["classes"]
    spectrogram = log_mel(samples, drawn)
    probabilities = {row.cell.system: shown}
    return clip_figure(spectrogram, drawn, reference, probabilities, classes, duration=duration, p_hop=hop)


def _fold_f1(entry: System) -> Interval[Floats]:
    """Dynamic F1 (static without event times) of each class, with bootstrap intervals over folds, as in Fig. 12."""
    parts = [saved.scores["dynamic"] or saved.scores["static"]["maximum"] for saved in entry.evaluations]
    labels = entry.evaluations[0].static_counts.classes
    f1 = np.array([[part["per_class"][label]["f1"] for label in labels] for part in parts], float)
    is_known = np.isfinite(f1)

    def mean_f1(weights: Floats) -> Floats:
        counted = weights @ is_known
        with np.errstate(invalid="ignore"):
            return np.where(counted > 0, weights @ np.where(is_known, f1, 0.0) / counted, np.nan)

    interval = bootstrap(mean_f1, len(f1))
    alone = is_known.sum(0) < 2  # no interval of one value
    return Interval(interval.value, np.where(alone, np.nan, interval.low), np.where(alone, np.nan, interval.high))


def _alpha_bound(settings: Settings, n_classes: int) -> float | None:
    """The largest alpha that CAP or linear-CAP allows in training; None for others, or if classes differ in it."""
    pool = create_detector(settings, tuple(map(str, range(n_classes)))).pool
    if not isinstance(pool, ConstrainedAutoPool | ConstrainedLinearPool):
        return None
    with torch.no_grad():
        pool.train()(torch.zeros(1, bag_frames(settings), n_classes))  # the bound depends on the longest bag so far
        pool.alpha.fill_(torch.inf)
    pool.project()
    bounds = set(pool.alpha.tolist())
    return bounds.pop() if len(bounds) == 1 else None


def _published_figure(
    grid: Grid, published: Published, rows: Sequence[Row], evaluations: Sequence[_Evaluation]
) -> Figure:
    """F1 of each published system: the paper's, ours evaluated like the paper's, then our other evaluations."""
    systems = by_system(row for row in rows if row.evaluation == published.evaluation)
    paper = {name: published.scores.get(runs[0].cell.system) for name, runs in systems.items()}
    theirs = f"{published.table} of the paper"
    values = {theirs: {name: float(scores[3]) for name, scores in paper.items() if scores is not None}}
    bars = {}
    for evaluation in sorted(evaluations, key=lambda evaluation: evaluation.name != published.evaluation):
        ours = by_system(row for row in rows if row.evaluation == evaluation.name)
        name, intervals = f"ours, {_in_words(grid, published, evaluation.name)}", evaluation.intervals
        values[name] = {system: mean_scores(ours[system])["dynamic_f1"] for system in values[theirs]}
        bars[name] = {system: intervals[system] for system in values[name] if np.isfinite(intervals[system]).all()}
    return plots.f1_by_class(values, bars, label="$F_1$ of segments (dynamic); lines: 95% intervals")


def _in_words(grid: Grid, published: Published, name: str) -> str:
    """An evaluation in the legend of a figure: how it differs from the one that is like the paper's."""
    paper, own = grid.evaluations[published.evaluation], grid.evaluations[name]
    if name == published.evaluation:
        return "evaluated as in the paper"
    if own == replace(paper, reference="data", align="middle"):
        return "correct frame times" if paper.reference == "data" else "correct labels"
    return f"evaluation {name}"
