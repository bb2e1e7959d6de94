"""Tables of a run report: systems against scores, F1 by class, and alpha read as a duration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from earmark.pooling.bounds import alpha_to_active_share
from earmark.tables import Cell, Column, Table, number_cell
from earmark.text import percent

if TYPE_CHECKING:
    from earmark.counts import Counts
    from earmark.evaluation.statistics import Interval
    from earmark.reporting.results import FrameSize


def class_table(scores: Mapping[str, Interval], counts: Counts, score: str) -> Table:
    """F1 of each class for each system, and the number of clips that contain it; the best of a row is bold.

    `counts` are static counts of any of the systems; `score` is the name of the score, for headings.
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
    activity : class -> (seconds, share of the clip), where known
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
            seconds, active = activity.get(label, (math.nan, math.nan))
            cells.append(Cell(f"{seconds:.2f}", seconds) if label in activity else number_cell(None))
            cells.append(replace(number_cell(active), text=percent(active)))
        for name, values in alphas.items():
            alpha, frame = values[label], frames.get(name)
            share = max(float(alpha_to_active_share(alpha)), frame.share if frame else 0.0)
            cells += [Cell(f"{alpha:.2f}", alpha), Cell(required_activity(alpha, frame), share)]
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
