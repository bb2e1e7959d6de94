"""What came out of a grid, to read: tables, figures and a page. Needs no GPU, no data and no weights.

OUT/results.csv                 every score of every run
OUT/table-JUDGEMENT.md, .tex    systems against scores, with intervals and tests
OUT/published.md, .tex          ours beside the paper's
OUT/figures/                    F1 and alpha of each class, F1 beside the paper's; where the data are at hand, durations
                                of events, and a clip as it is heard; as PNG and SVG
OUT/report.html, .md, .tex      all of it on one page
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from earmark import plots
from earmark.datasets import Collection
from earmark.errors import DataError, EarmarkError
from earmark.evaluation.comparison import Comparison, Entry, compare_entries
from earmark.experiment.cells import changed_settings, data_of
from earmark.experiment.grid import Cell, Grid
from earmark.experiment.results import Row, by_system, describe_data, write_results
from earmark.features import FeatureConfig, LogMel
from earmark.files import make_folder, written_whole
from earmark.pooling import ConstrainedAutoPool, create_pool
from earmark.report import words
from earmark.report.figures import Drawing
from earmark.report.grid_tables import (
    by_fold,
    fold_table,
    judgement_table,
    mean_interval,
    mean_scores,
    published_tables,
)
from earmark.report.inline import fill_template, inline_svg
from earmark.report.mistakes import within
from earmark.report.results import bag_frames, class_f1, dense_probabilities, learned_alphas
from earmark.report.runs import Extra, write_report
from earmark.report.tables import Table, short_number
from earmark.settings import Settings
from earmark.timing import span_to_frames

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_grid_report"]

_FIGURES = {  # file, what is said below, whether it is wide
    "classes": ("f1-by-class", "Dynamic F1 of each class. Bars are 95 % intervals.", True),
    "alphas": (
        "learned-alpha",
        "Alpha as learned, the mean over runs. A dashed line is the greatest that CAP allows.",
        False,
    ),
    "durations": (
        "event-durations",
        "For how long each class is heard in a clip. The line is the length of what is learned from.",
        False,
    ),
    "example": (
        "example",
        "A clip as the best system hears it: spectrogram, reference, likelihoods. It is the one with the most classes.",
        True,
    ),
    "published": ("published-f1", "Dynamic F1 of each system, ours and the paper's. Bars are 95 % intervals.", True),
}
_FEW = 3  # cells named in a line
_LONGEST = 30.0  # seconds of a clip that are shown


def write_grid_report(
    grid: Grid,
    rows: Sequence[Row],
    out: Path,
    *,
    command: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write tables, figures and the page of what has been run; returns what was written.

    Parameters
    ----------
    rows
        From `earmark.experiment.results.gather`. Systems and runs that are missing are named.
    command
        What to type to get the same again.
    progress
        Told how many parts of the work are done, and how many there are.
    """
    if not rows:
        raise DataError(f"{out}: no run of this grid is finished")
    tell = progress or (lambda done, total: None)
    parts = len(grid.judgements) + 2
    make_folder(out)
    write_results(rows, out / "results.csv")
    judged: list[_Judged] = []
    for name in grid.judgements:
        tell(len(judged), parts)
        judged.append(_judge(grid, rows, name))
    tell(parts - 2, parts)
    intervals = next((own.intervals for own in judged if grid.published and own.name == grid.published.judgement), {})
    published = published_tables(grid, rows, intervals) or ()
    differences = _differences(grid, rows, describe_data(grid, out))
    texts = {f"table-{own.name}": (own.table,) for own in judged} | ({"published": published} if published else {})
    written = [out / "results.csv", *(path for name, own in texts.items() for path in _write_tables(own, out / name))]
    drawings = {}
    for name, figure in _figures(grid, rows, judged).items():
        file, caption, is_wide = _FIGURES[name]
        written += plots.save(figure, out / "figures" / file)
        drawings[name] = Drawing(inline_svg(figure, caption), caption, is_wide)
    tell(parts - 1, parts)
    values = {
        "published": published,
        "others": [own.table for own in judged[1:]],
        "differences": differences,
        "has_authors": any(judging.reference == "authors" for judging in grid.judgements.values()),
        "commands": [command] if command else [],
        "why_not": "",
    }
    page = out / "report.html"
    written += _write_page(grid, judged[0], drawings, values, page)
    tell(parts, parts)
    return written


@dataclass(frozen=True)
class _Judged:
    """One judgement of a grid."""

    name: str
    entries: tuple[Entry, ...]
    table: Table
    intervals: Mapping[str, tuple[float, float]]
    """Of dynamic F1, by system."""
    comparison: Comparison | None = None
    """Of all systems, in which only those that were not told when compete; None with folds, whose clips differ."""
    verdict: str = ""


def _judge(grid: Grid, rows: Sequence[Row], name: str) -> _Judged:
    own = [row for row in rows if row.judgement == name]
    ordered = by_system([row for row in own if row.cell.is_weak] + [row for row in own if not row.cell.is_weak])
    entries = {system: Entry(system, tuple(row.saved() for row in theirs)) for system, theirs in ordered.items()}
    everybody = tuple(entries.values())
    if grid.folds:
        intervals = {system: mean_interval(by_fold(theirs, "dynamic_f1")) for system, theirs in ordered.items()}
        return _Judged(name, everybody, fold_table(grid, rows, name), intervals)
    weak = [entries[system] for system, theirs in ordered.items() if theirs[0].cell.is_weak]
    strong = [entry for entry in everybody if entry not in weak]
    first = compare_entries(weak or strong)
    above = compare_entries([_best(first), *strong]) if weak and strong else None
    comparison = first if above is None else _joined(first, above)
    values = {system: comparison.values[system].get("dynamic.f1") for system in entries}
    return _Judged(
        name,
        everybody,
        judgement_table(first, above, name, grid.judgements[name]),
        {system: (value.low, value.high) for system, value in values.items() if value is not None},
        comparison,
        " ".join([words.verdict(first), *_reached(above, first.best)]),
    )


def _reached(above: Comparison | None, best: str) -> list[str]:
    """What systems reach that were told when."""
    if above is None:
        return []
    names = [name for name in above.values if name != best]
    scores = {name: short_number(own[above.statistic].value) for name, own in above.values.items()}
    who, be = words.listed(names), ("was", "does") if len(names) == 1 else ("were", "do")
    told = words.listed(scores[name] for name in names)
    return [
        f"{who[0].upper()}{who[1:]} {be[0]} told when sounds happen, and {be[1]} not compete: F1 {told}, "
        f"where {best} has {scores[best]}."
    ]


def _best(comparison: Comparison) -> Entry:
    return next(entry for entry in comparison.entries if entry.name == comparison.best)


def _joined(weak: Comparison, above: Comparison) -> Comparison:
    """Systems that were not told when, as they were compared, and behind them those that were."""
    strong = tuple(entry for entry in above.entries if entry.name != weak.best)
    return replace(
        weak,
        entries=(*weak.entries, *strong),
        values={**weak.values, **{entry.name: above.values[entry.name] for entry in strong}},
        lines=(*weak.lines, *(verdict.text for verdict in above.verdicts)),
        notes=tuple(dict.fromkeys((*weak.notes, *above.notes))),
    )


def _differences(grid: Grid, rows: Sequence[Row], data: Mapping[str, Any]) -> list[str]:
    """What differs from the paper, or from what the grid asks for."""
    found = list(grid.notes)
    if "clips" in data:
        counts = ", ".join(f"{count:,} {split}" for split, count in data["clips"].items())
        found.append(f"Clips: {counts}{' (of the first split)' if grid.folds else ''}.")
    if "soundscapes" in data:
        bank = data["soundscapes"].get("bank", "")
        found.append(f"The sound is not the published one: `earmark synth` made it, from the sound bank {bank}.")
    skipped = max(len(row.saved().scores.get("skipped") or ()) for row in rows)
    if skipped:
        found.append(f"{skipped:,} clips could not be read and are left out.")
    return [*found, *_missing(grid, rows), *_changed(rows)]


def _missing(grid: Grid, rows: Iterable[Row]) -> list[str]:
    """Cells that are not done, system by system."""
    done = {row.cell.name for row in rows}
    wanted: dict[str, list[Cell]] = {}
    for cell in grid.cells:
        wanted.setdefault(cell.system, []).append(cell)
    counts = {system: sum(cell.name in done for cell in cells) for system, cells in wanted.items()}
    lacking = [f"{name} ({n} of {len(wanted[name])} runs)" for name, n in counts.items() if n < len(wanted[name])]
    return [f"Not finished: {words.listed(lacking)}."] if lacking else []


def _changed(rows: Iterable[Row]) -> list[str]:
    """Cells that were trained with other settings than the grid's, those with the same changes together."""
    groups: dict[str, list[str]] = {}
    for cell, row in {row.cell.name: row for row in rows}.items():
        changes = changed_settings(row.folder.parent, row.cell)
        if changes:
            told = ", ".join(f"{key} {then} instead of {now}" for key, (then, now) in changes.items())
            groups.setdefault(told, []).append(cell)
    return [
        f"Trained with other settings than the grid's: {', '.join(cells[:_FEW])}"
        f"{f' and {len(cells) - _FEW} more' if len(cells) > _FEW else ''} ({told})."
        for told, cells in groups.items()
    ]


def _figures(grid: Grid, rows: Sequence[Row], judged: Sequence[_Judged]) -> dict[str, Figure]:
    """F1 and alpha of each class by the first judgement, and F1 beside the published one."""
    first = judged[0]
    found = {}
    values, bars = _class_scores(first, bool(grid.folds))
    if any(np.isfinite(list(own.values())).any() for own in values.values()):
        found["classes"] = plots.f1_by_class(values, bars)
    alphas = learned_alphas(first.entries)
    if alphas:
        cells = {system: theirs[0].cell for system, theirs in by_system(rows).items()}
        bounds = {name: _bound(cells[name].settings, len(own)) for name, own in alphas.items()}
        found["alphas"] = plots.learned_alpha(alphas, {name: own for name, own in bounds.items() if own is not None})
    if grid.published and any(own.intervals for own in judged):
        found["published"] = _published_figure(grid, rows, judged)
    return found | _data_figures(grid, first)


def _data_figures(grid: Grid, judged: _Judged) -> dict[str, Figure]:
    """The paper's Figs. 3 to 5, and Fig. 9, where the data are at hand and say when."""
    try:
        collection = data_of(grid.source, 0 if grid.folds else None)
    except DataError:
        return {}
    if not any(row.has_times for row in collection.labels):
        return {}
    settings = grid.cells[0].settings
    found = {"durations": plots.event_durations(collection.labels, clip_duration=settings.training.patch)}
    example = _example(collection, judged, settings.features)
    return found if example is None else found | {"example": example}


def _example(collection: Collection, judged: _Judged, features: FeatureConfig) -> Figure | None:
    """The clip with the most classes, of several the first by name; None where no probabilities were kept."""
    ranked = sorted(judged.entries, key=lambda e: e.name != (judged.comparison and judged.comparison.best))
    saved = ranked[0].evaluations[0]
    heard = dense_probabilities(saved)
    clips = {clip.filename: clip for clip in collection.clips if clip.filename in heard}
    if not clips:
        return None
    labels = collection.labels
    name = max(sorted(clips), key=lambda name: len({row.label for row in labels.of(name) if row.present}))
    try:
        samples = clips[name].read(features.rate)[: round(_LONGEST * features.rate)]
    except EarmarkError:  # the others can be judged without it
        return None
    with torch.inference_mode():
        spectrogram = LogMel(features)(torch.from_numpy(samples)[None])[0].numpy()
    duration, hop = len(samples) / features.rate, float(saved.scores["grid"]["hop"])
    return plots.clip_figure(
        spectrogram,
        features,
        within(labels.of(name), 0.0, duration),
        {ranked[0].name: heard[name][: span_to_frames(0.0, duration, hop)[1]]},
        saved.scores["classes"],
        duration=duration,
        p_hop=hop,
    )


def _class_scores(
    judged: _Judged, has_folds: bool
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, tuple[float, float]]]]:
    """Dynamic F1, or static where there are no times, by system and class, and intervals over clips, or over folds."""
    values: dict[str, dict[str, float]] = {}
    bars: dict[str, dict[str, tuple[float, float]]] = {}
    for entry in judged.entries:
        classes = entry.evaluations[0].static_counts.classes
        if has_folds:
            parts = [saved.scores["dynamic"] or saved.scores["static"]["maximum"] for saved in entry.evaluations]
            each = {label: [float(part["per_class"][label]["f1"]) for part in parts] for label in classes}
            known = {label: [value for value in own if np.isfinite(value)] for label, own in each.items()}
            values[entry.name] = {label: float(np.mean(own)) if own else np.nan for label, own in known.items()}
            spread = {label: mean_interval(own) for label, own in known.items()}
        else:
            f1 = class_f1(entry)
            values[entry.name] = dict(zip(classes, f1.value.tolist(), strict=True))
            spread = dict(zip(classes, zip(f1.low.tolist(), f1.high.tolist(), strict=True), strict=True))
        bars[entry.name] = {label: pair for label, pair in spread.items() if np.isfinite(pair).all()}
    return values, bars


def _bound(settings: Settings, n_classes: int) -> float | None:
    """The greatest alpha that CAP allows for the bags it is trained on; None for others, or if classes differ in it."""
    options = dict(settings.pool)
    pool = create_pool(options.pop("name"), n_classes, **options)
    if not isinstance(pool, ConstrainedAutoPool):
        return None
    with torch.no_grad():
        pool.train()(torch.zeros(1, bag_frames(settings), n_classes))  # so it has met a bag of that length
        pool.alpha.fill_(torch.inf)
    pool.project()
    greatest = set(pool.alpha.tolist())
    return greatest.pop() if len(greatest) == 1 else None


def _published_figure(grid: Grid, rows: Sequence[Row], judged: Sequence[_Judged]) -> Figure:
    told = grid.published
    assert told is not None
    ours = [own for own in judged if own.name == told.judgement] + [own for own in judged if own.name != told.judgement]
    systems = by_system(row for row in rows if row.judgement == told.judgement)
    known = {name: theirs[0].cell.system for name, theirs in systems.items() if theirs[0].cell.system in told.scores}
    values = {told.table: {name: float(told.scores[system][3]) for name, system in known.items()}}
    bars = {}
    for own in ours:
        name = f"ours, {own.name}"
        means = by_system(row for row in rows if row.judgement == own.name)
        values[name] = {system: mean_scores(means[system])["dynamic_f1"] for system in known}
        bars[name] = {system: own.intervals[system] for system in known if np.isfinite(own.intervals[system]).all()}
    return plots.f1_by_class(values, bars)


def _write_tables(tables: Sequence[Table], path: Path) -> list[Path]:
    """Tables one below the other, as Markdown and LaTeX."""
    markdown = [part for t in tables for part in (f"**{t.caption}**", t.to_markdown(intervals=True), t.note) if part]
    latex = [part for t in tables for part in (f"% {t.caption}. {t.note}".rstrip(), t.to_latex(intervals=True)) if part]
    texts = {".md": "\n\n".join(markdown), ".tex": "\n".join(["% needs: \\usepackage{booktabs}", *latex])}
    written = []
    for suffix, text in texts.items():
        target = path.parent / f"{path.name}{suffix}"
        with written_whole(target) as draft:
            draft.write_text(text + "\n", encoding="utf-8")
        written.append(target)
    return written


def _write_page(
    grid: Grid, first: _Judged, drawings: dict[str, Drawing], values: dict[str, Any], page: Path
) -> list[Path]:
    """The page, built on that of runs; with folds, whose runs are not of the same clips, a plain one."""
    if first.comparison is not None:
        values["verdict"] = first.verdict
        extra = Extra("grid.html", {"models": first.table}, drawings, values)
        return write_report(first.comparison, page, data=grid.source, title=grid.title, extra=extra)
    values |= {
        "title": grid.title,
        "version": version("earmark"),
        "date": f"{(today := date.today()).day} {today:%B %Y}",
        "tables": {"models": first.table},
        "drawings": drawings,
    }
    with written_whole(page) as draft:
        draft.write_text(fill_template("folds.html", **values), encoding="utf-8")
    return [page]
