"""A detector judged on labelled clips: static scores by two rules, dynamic scores of segments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from earmark.annotations import Label, LabelTable
from earmark.errors import DataError, unknown_name
from earmark.evaluation import clip, segment
from earmark.evaluation.base import Counts, Scores, scores
from earmark.evaluation.clip import ClipScores
from earmark.evaluation.statistics import bootstrap
from earmark.events import Decoder, interpolate
from earmark.inference import ClipProbabilities

__all__ = ["ALIGNMENTS", "Judgement", "decode_clip", "judge"]

ALIGNMENTS = {
    "middle": "a frame's value stands in the middle of what the frame saw",
    "authors": "as in the paper's code: at its beginning, frames spread evenly over the clip",
}


@dataclass(frozen=True)
class Judgement:
    """How good a detector is."""

    maximum: ClipScores
    """Static, by the maximum over frames: Eq. (3)."""
    pooled: ClipScores
    """Static, by the pooled output."""
    dynamic: Scores | None
    """Segments; None if the reference has no times."""
    static_counts: Counts
    dynamic_counts: Counts | None
    estimate: LabelTable
    """The events found."""

    def intervals(self, *, level: float = 0.95, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals over clips of the scores that the paper's tables have."""
        names = ("f1", "precision", "recall", "error_rate")
        parts = [("dynamic", self.dynamic_counts, names)] if self.dynamic_counts is not None else []
        found = {}
        for part, counts, wanted in parts:
            for name in wanted:
                interval = bootstrap(counts, name, level=level, seed=seed)
                found[f"{part}.{name}"] = (float(interval.low), float(interval.high))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries of numbers."""
        return {
            "static": {"maximum": self.maximum.to_dict(), "pooled": self.pooled.to_dict()},
            "dynamic": None if self.dynamic is None else self.dynamic.to_dict(),
        }


def decode_clip(
    probabilities: ClipProbabilities,
    decoder: Decoder,
    classes: tuple[str, ...],
    hop: float,
    reduction: int,
    *,
    align: str,
) -> list[Label]:
    """Events of a clip: probabilities interpolated to the rate of the features (IV.C), then decided on.

    Parameters
    ----------
    hop
        Seconds between frames of the features.
    reduction
        Frames of the features per frame of the probabilities.
    align
        One of `ALIGNMENTS`.
    """
    if align not in ALIGNMENTS:
        raise unknown_name("align", align, ALIGNMENTS)
    n, p = probabilities.frames, probabilities.dynamic
    if align == "authors":
        dense = interpolate(p, n / len(p), n, align="start")
    else:
        dense = interpolate(p, reduction, n, align="middle")
    return decoder.decode(dense, hop, classes, probabilities.filename, duration=probabilities.duration)


def judge(
    clips: Iterable[ClipProbabilities],
    reference: LabelTable,
    *,
    hop: float,
    reduction: int,
    decoder: Decoder | None = None,
    segment_length: float = 1.0,
    align: str = "middle",
    convention: str = "plain",
) -> Judgement:
    """Judge a detector's probabilities.

    Parameters
    ----------
    reference
        Labels of the clips. Classes without times are left out of dynamic scores, unknown ones of all.
    convention
        Of divisions by zero; see `earmark.evaluation.base`.
    """
    decoder = decoder or Decoder()
    heard = list(clips)
    if not heard:
        raise DataError("there are no clips to judge")
    names = [c.filename for c in heard]
    table = reference.select(names)
    targets = table.bag_targets(names)
    by_maximum = np.stack([c.dynamic.max(0) for c in heard])
    pooled = np.stack([c.static for c in heard])
    events = [e for c in heard for e in decode_clip(c, decoder, table.classes, hop, reduction, align=align)]
    estimate = LabelTable(events, filenames=names, classes=table.classes)
    has_times = any(row.has_times for row in table) or not any(row.present for row in table)
    durations = {c.filename: c.duration for c in heard}
    dynamic = segment.counts(table, estimate, segment=segment_length, durations=durations) if has_times else None
    return Judgement(
        maximum=clip.evaluate(targets, by_maximum, rule="maximum", classes=table.classes, convention=convention),
        pooled=clip.evaluate(targets, pooled, rule="pooled", classes=table.classes, convention=convention),
        dynamic=None if dynamic is None else scores(dynamic, convention=convention),
        static_counts=clip.counts(targets, by_maximum, classes=table.classes, filenames=names),
        dynamic_counts=dynamic,
        estimate=estimate,
    )
