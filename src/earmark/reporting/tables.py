"""Tables of a run report: systems against scores, F1 by class, and alpha read as a duration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from earmark.pooling.bounds import alpha_to_active_share
from earmark.tables import Cell, Column, Table, number_cell, short_number
from earmark.text import percent

if TYPE_CHECKING:
    from earmark.evaluation.base import Counts
    from earmark.evaluation.comparison import Comparison
    from earmark.evaluation.statistics import Interval
    from earmark.reporting.results import FrameSize

__all__ = [
    "PAPER_COLUMNS",
    "alpha_table",
    "class_table",
    "clipped_interval",
    "comparison_table",
    "required_activity",
]

PAPER_COLUMNS = (  # those of the paper's Tables I to III: group, heading, key of the score
    ("static, maximum", "F1", "static.maximum.macro.f1"),
    ("static, maximum", "P", "static.maximum.macro.precision"),
    ("static, maximum", "R", "static.maximum.macro.recall"),
    ("static, pooled", "F1", "static.pooled.macro.f1"),
    ("static, pooled", "P", "static.pooled.macro.precision"),
    ("static, pooled", "R", "static.pooled.macro.recall"),
    ("dynamic", "F1", "dynamic.f1"),
    ("dynamic", "P", "dynamic.precision"),
    ("dynamic", "R", "dynamic.recall"),
    ("dynamic", "error rate", "dynamic.error_rate"),
)


def comparison_table(comparison: Comparison) -> Table:
    """Systems against scores, as in the paper's Tables I to III.

    Static scores are averaged over classes (macro), dynamic ones pool all classes (micro). If the reference has no
    times, static scores pool all classes too, as in the test. The best value of each column is bold; underlines are in
    the tested column, `comparison.statistic`. A single system has no marks.
    """
    names = [entry.name for entry in comparison.entries]
    columns, rows = [Column("model", is_text=True)], [[Cell(name)] for name in names]
    is_micro = comparison.statistic.startswith("static")
    for group, heading, key in PAPER_COLUMNS:
        key = key.replace(".macro", "") if is_micro else key
        scores = {name: values[key] for name, values in comparison.values.items() if key in values}
        known = [score.value for score in scores.values() if math.isfinite(score.value)]
        if not known:
            continue
        is_rate, is_tested = key.endswith("_rate"), key == comparison.statistic
        columns.append(Column(heading, group, lower_is_better=is_rate))
        best = short_number(min(known) if is_rate else max(known))
        for name, row in zip(names, rows, strict=True):
            if name not in scores:
                row.append(number_cell(None))
                continue
            score = scores[name]
            is_best = name == comparison.best if is_tested else short_number(score.value) == best
            row.append(
                number_cell(
                    score.value,
                    clipped_interval(score.low, score.high, is_rate=is_rate),
                    best=is_best and len(names) > 1,
                    tied=is_tested and name in comparison.tied,
                )
            )
    caption = "All classes pooled" if is_micro else "Static scores averaged over classes, dynamic scores over segments"
    return Table(columns, rows, caption, _comparison_note(comparison))


def clipped_interval(low: float, high: float, *, is_rate: bool) -> tuple[float, float]:
    """An interval within the range of the score, which Student's interval over seeds can exceed; NaN stays NaN."""
    return max(low, 0.0), high if is_rate else min(high, 1.0)


def _comparison_note(comparison: Comparison) -> str:
    is_dynamic = comparison.statistic == "dynamic.f1"
    parts = ["Static: whether a class occurs in the clip, by its most likely frame (maximum) or by the pooled output."]
    if is_dynamic:
        parts.append(f"Dynamic: whether it occurs in each segment of {comparison.segment:g} s.")
    parts.append("P is precision, R recall.")
    if len(comparison.entries) > 1:
        tested = "dynamic F1" if is_dynamic else "static F1"
        parts.append(f"Bold: best of the column. Underlined ({tested}): not distinguishable from the best.")
    return " ".join(parts)


def class_table(scores: Mapping[str, Interval], counts: Counts, score: str) -> Table:
    """F1 of each class for each system, and the number of clips that contain it; the best of a row is bold.

    Parameters
    ----------
    scores : system -> from `earmark.reporting.results.class_f1`
    counts
        Static counts of any of the systems.
    score
        Name of the score, as a heading.
    """
    columns = [Column("class", is_text=True), Column("clips"), *(Column(name, score) for name in scores)]
    rows = []
    for c, (label, clips) in enumerate(zip(counts.classes, counts.n_ref.sum(0).tolist(), strict=True)):
        cells = [number_cell(float(f1.value[c]), (float(f1.low[c]), float(f1.high[c]))) for f1 in scores.values()]
        best = max((cell.value for cell in cells if cell.value is not None), default=None)
        if best is not None and len(cells) > 1:
            cells = [replace(cell, best=cell.value == best) for cell in cells]
        rows.append([Cell(label), Cell(f"{clips:,}", clips), *cells])
    note = "Clips: number of clips that contain the class." + (" Bold: best of the row." if len(scores) > 1 else "")
    return Table(columns, rows, f"{score} by class", note)


def alpha_table(
    alphas: Mapping[str, Mapping[str, float]],
    activity: Mapping[str, tuple[float, float]],
    classes: Sequence[str],
    frames: Mapping[str, FrameSize],
) -> Table:
    """Learned alpha of each class and the activity that it requires, beside the activity of the reference.

    Parameters
    ----------
    alphas : system -> class -> alpha
    activity : class -> (seconds, share)
        From `earmark.reporting.results.active_shares`; empty if unknown.
    frames : system -> size of an output frame, where known
    """
    columns = [Column("class", is_text=True)]
    if activity:
        columns += [Column("seconds", "active, on average"), Column("of the clip", "active, on average")]
    for name in alphas:
        columns += [Column("alpha", name), Column("needs", name)]
    rows = []
    for label in classes:
        cells = [Cell(label)]
        if activity:
            seconds, share = activity.get(label, (np.nan, np.nan))
            cells.append(Cell(f"{seconds:.2f}", seconds) if label in activity else number_cell(None))
            cells.append(Cell(percent(share), share if math.isfinite(share) else None))
        for name, values in alphas.items():
            cells += [Cell(f"{values[label]:.2f}", values[label]), _required_cell(values[label], frames.get(name))]
        rows.append(cells)
    note = "Needs: share of a clip that must be active, with certainty, for the clip to count as containing the class"
    note += "; values in seconds are one output frame, the minimum." if frames else "."
    return Table(columns, rows, "Alpha read as a duration", note)


def required_activity(alpha: float, frame: FrameSize | None = None) -> str:
    """How much of a clip must be active: a share, or one output frame where the share is smaller than that.

    >>> from earmark.reporting.results import FrameSize
    >>> required_activity(1.8, FrameSize(0.37, 0.037)), required_activity(9.0, FrameSize(0.37, 0.037))
    ('14 %', '0.4 s')
    >>> required_activity(9.0, FrameSize(0.023, 0.0023))
    '0.02 s'
    """
    share = float(alpha_to_active_share(alpha))
    if frame is None or share > frame.share:
        return percent(share)
    return f"{frame.seconds:.{1 if frame.seconds >= 0.1 else 2}f} s"


def _required_cell(alpha: float, frame: FrameSize | None) -> Cell:
    share = float(alpha_to_active_share(alpha))
    return Cell(required_activity(alpha, frame), share if frame is None else max(share, frame.share))
