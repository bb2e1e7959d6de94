"""A detector judged on labelled clips: static scores by two rules, dynamic scores of segments, and scores of events.

`judge` takes a detector's probabilities, `judge_events` events that were found elsewhere. Both give a `Judgement`;
`earmark.evaluation.saved` keeps it on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation import clip, curves, event, psds, segment
from earmark.evaluation.base import Counts, Scores, scores
from earmark.evaluation.cautions import rough_notes, untimed_notes
from earmark.evaluation.clip import ClipScores
from earmark.evaluation.curves import Curve
from earmark.evaluation.references import fingerprint
from earmark.evaluation.statistics import bootstrap, ratio
from earmark.events import Decoder, interpolate, tune_thresholds
from earmark.inference.bags import ClipProbabilities

__all__ = ["ALIGNMENTS", "Grid", "Judgement", "decode_clip", "judge", "judge_events", "segment_curve", "tune_decoder"]

Floats = npt.NDArray[np.floating[Any]]

ALIGNMENTS = {
    "middle": "a frame's value stands in the middle of what the frame saw",
    "authors": "as in the paper's code: at its beginning, frames spread evenly over the clip",
}
_SCENARIOS = {"psds1": psds.SCENARIO_1, "psds2": psds.SCENARIO_2}


@dataclass(frozen=True)
class Grid:
    """When frames are.

    Attributes
    ----------
    hop
        Seconds between frames of the features.
    reduction
        Frames of the features per frame of the probabilities.
    align
        One of `ALIGNMENTS`.
    """

    hop: float
    reduction: int
    align: str = "middle"

    def __post_init__(self) -> None:
        if self.align not in ALIGNMENTS:
            raise unknown_name("align", self.align, ALIGNMENTS)

    def dense(self, probabilities: ClipProbabilities) -> Floats:
        """Probabilities at the rate of the features, (frames, classes), on straight lines between those there are."""
        n, p = probabilities.frames, probabilities.dynamic
        if self.align == "authors":
            return interpolate(p, n / len(p), n, align="start")
        return interpolate(p, self.reduction, n, align="middle")


@dataclass(frozen=True)
class Judgement:
    """How good a detector is.

    Attributes
    ----------
    maximum, pooled
        Static, by the maximum over frames, Eq. (3), at the decoder's threshold; and by the pooled output, at 0.5. Of
        events found elsewhere, a class is in a clip if an event of it is, and there is no pooled output.
    dynamic, event
        Segments, and events within 200 ms or a fifth of their length; None if the reference has no times.
    psds
        `psds1` and `psds2`, DCASE's two settings, of the interpolated probabilities; None where nobody asked.
    static_counts, pooled_counts, dynamic_counts, event_counts
        What they are made of, clip by clip.
    estimate
        The events found.
    fingerprint
        Of the reference; see `earmark.evaluation.references`.
    clips, grid
        The probabilities, and when their frames are; none if there were none.
    """

    maximum: Scores
    pooled: ClipScores | None
    dynamic: Scores | None
    event: Scores | None
    psds: dict[str, float] | None
    static_counts: Counts
    pooled_counts: Counts | None
    dynamic_counts: Counts | None
    event_counts: Counts | None
    estimate: LabelTable
    segment: float
    convention: str
    fingerprint: str
    decoder: Decoder | None = None
    clips: tuple[ClipProbabilities, ...] = ()
    grid: Grid | None = None
    notes: tuple[str, ...] = ()

    def intervals(self, *, level: float = 0.95, seed: int = 0) -> dict[str, tuple[float, float]]:
        """Bootstrap intervals over clips of the scores that the paper's tables have: {"dynamic.f1": (low, high)}."""
        ratios = ("f1", "precision", "recall", "error_rate")
        parts = {
            "static.maximum": (self.static_counts, ratios[:1]),
            "static.pooled": (self.pooled_counts, ratios[:1]),
            "dynamic": (self.dynamic_counts, ratios),
            "event": (self.event_counts, ratios[:1]),
        }
        found = {}
        for part, (counts, wanted) in parts.items():
            if counts is None:
                continue
            for name in wanted:
                statistic = ratio(name, convention=self.convention)
                interval = bootstrap(counts, statistic, level=level, seed=seed)
                found[f"{part}.{name}"] = (float(interval.low), float(interval.high))
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries of numbers."""
        return {
            "static": {"maximum": self.maximum.to_dict(), "pooled": self.pooled and self.pooled.to_dict()},
            "dynamic": self.dynamic and self.dynamic.to_dict(),
            "event": self.event and self.event.to_dict(),
            "psds": self.psds,
            "decoder": self.decoder and self.decoder.to_dict(),
            "grid": self.grid and asdict(self.grid),
            "reference_fingerprint": self.fingerprint,
            "notes": list(self.notes),
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

    `hop`, `reduction` and `align` are those of a `Grid`.
    """
    dense = Grid(hop, reduction, align).dense(probabilities)
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
    with_psds: bool = False,
) -> Judgement:
    """Judge a detector's probabilities.

    Parameters
    ----------
    reference
        Labels of the clips. Classes without times are left out of dynamic scores, unknown ones of all.
    convention
        Of divisions by zero; see `earmark.evaluation.base`.
    with_psds
        Whether to compute PSDS too: about a quarter of a minute for an hour of clips.
    """
    decoder, grid = decoder or Decoder(), Grid(hop, reduction, align)
    heard = tuple(clips)
    if not heard:
        raise DataError("there are no clips to judge")
    names = [c.filename for c in heard]
    table = reference.select(names)
    targets = table.bag_targets(names)
    by_maximum = np.stack([c.dynamic.max(0) for c in heard])
    pooled = np.stack([c.static for c in heard])
    dense = {c.filename: grid.dense(c) for c in heard}
    durations = {c.filename: c.duration for c in heard}
    events = [
        e for name in names for e in decoder.decode(dense[name], hop, table.classes, name, duration=durations[name])
    ]
    estimate = LabelTable(events, filenames=names, classes=table.classes)
    timed = _timed_counts(table, estimate, segment_length, durations)
    shared: dict[str, Any] = {"classes": table.classes}
    static = clip.counts(targets, by_maximum, threshold=decoder.threshold, filenames=names, **shared)
    score: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    if with_psds and timed is not None:
        score, notes = _psds(table, dense, hop=hop, durations=durations)
    return Judgement(
        maximum=clip.evaluate(
            targets, by_maximum, rule="maximum", threshold=decoder.threshold, convention=convention, **shared
        ),
        pooled=clip.evaluate(targets, pooled, rule="pooled", convention=convention, **shared),
        dynamic=timed and scores(timed[0], convention=convention),
        event=timed and scores(timed[1], convention=convention),
        psds=score,
        static_counts=static,
        pooled_counts=clip.counts(targets, pooled, filenames=names, **shared),
        dynamic_counts=timed and timed[0],
        event_counts=timed and timed[1],
        estimate=estimate,
        segment=segment_length,
        convention=convention,
        fingerprint=fingerprint(table),
        decoder=decoder,
        clips=heard,
        grid=grid,
        notes=(*notes, *untimed_notes(table, estimate), *rough_notes(static)),
    )


def judge_events(
    estimate: LabelTable,
    reference: LabelTable,
    *,
    durations: Mapping[str, float] | None = None,
    segment_length: float = 1.0,
    convention: str = "plain",
    with_psds: bool = False,
) -> Judgement:
    """Judge events that were found elsewhere, over the clips and classes of the reference.

    Parameters
    ----------
    durations
        Seconds by file name, where they are known: then segments reach to the end of a clip.
    with_psds
        Whether to compute PSDS, which needs durations. It is that of the events' confidences (1 where they have none),
        not of the probabilities that they were made from.
    """
    if with_psds and durations is None:
        raise ArgumentError("PSDS counts false alarms per hour, so it needs durations of the clips")
    static = clip.label_counts(reference, estimate)
    timed = _timed_counts(reference, estimate, segment_length, durations)
    score: dict[str, float] | None = None
    notes: tuple[str, ...] = ()
    if with_psds and timed is not None and durations is not None:
        values = {name: _as_scores(estimate, name, durations[name]) for name in reference.filenames}
        score, notes = _psds(
            reference,
            {name: own for name, (own, _) in values.items()},
            edges={name: times for name, (_, times) in values.items()},
            durations={name: durations[name] for name in values},
        )
    return Judgement(
        maximum=scores(static, convention=convention),
        pooled=None,
        dynamic=timed and scores(timed[0], convention=convention),
        event=timed and scores(timed[1], convention=convention),
        psds=score,
        static_counts=static,
        pooled_counts=None,
        dynamic_counts=timed and timed[0],
        event_counts=timed and timed[1],
        estimate=estimate,
        segment=segment_length,
        convention=convention,
        fingerprint=fingerprint(reference),
        notes=(*notes, *untimed_notes(reference, estimate), *rough_notes(static)),
    )


def tune_decoder(
    clips: Iterable[ClipProbabilities],
    reference: LabelTable,
    grid: Grid,
    *,
    tuned_on: str,
    decoder: Decoder | None = None,
    segment_length: float = 1.0,
) -> Decoder:
    """The decoder with the best threshold per class on these clips; see `earmark.events.tune_thresholds`."""
    dense = {c.filename: grid.dense(c) for c in clips}
    return tune_thresholds(dense, reference, grid.hop, tuned_on=tuned_on, decoder=decoder, segment=segment_length)


def segment_curve(judgement: Judgement, reference: LabelTable) -> Curve:
    """Precision and recall of segments at every threshold, all classes pooled, of a judged detector."""
    if judgement.grid is None:
        raise ArgumentError("events have no thresholds below the one that made them: a curve needs probabilities")
    found = curves.counts(
        reference.select(c.filename for c in judgement.clips),
        {c.filename: judgement.grid.dense(c) for c in judgement.clips},
        segment=judgement.segment,
        hop=judgement.grid.hop,
        durations={c.filename: c.duration for c in judgement.clips},
    )
    return curves.curve(found)


def _timed_counts(
    reference: LabelTable, estimate: LabelTable, length: float, durations: Mapping[str, float] | None
) -> tuple[Counts, Counts] | None:
    """Counts of segments and of events, where the reference says when, or that there is nothing."""
    says_when = any(row.has_times for row in reference) or not any(row.present for row in reference)
    is_weak = len(estimate) > 0 and not any(row.has_times for row in estimate)
    if not says_when or is_weak:
        return None
    return segment.counts(reference, estimate, segment=length, durations=durations), event.counts(reference, estimate)


def _psds(
    reference: LabelTable, estimate: Mapping[str, npt.ArrayLike], **when: Any
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Both settings, and what has to be said."""
    rows = [row for row in reference if row.onset is None or row.onset != row.offset]
    points = len(reference) - len(rows)
    table = LabelTable(rows, filenames=reference.filenames, classes=reference.classes, complete=reference.complete)
    found = {
        name: psds.evaluate(table, estimate, scenario=scenario, **when).value for name, scenario in _SCENARIOS.items()
    }
    notes = (f"PSDS leaves out {points} reference events of no length",) if points else ()
    return found, notes


def _as_scores(estimate: LabelTable, filename: str, duration: float) -> tuple[Floats, Floats]:
    """Events as scores that are constant between their ends: (frames, classes), and edges (frames + 1,)."""
    rows = [row for row in estimate.of(filename) if row.onset is not None and row.offset is not None]
    times = np.unique([0.0, duration, *(min(t, duration) for row in rows for t in (row.onset, row.offset) if t)])
    column = {label: c for c, label in enumerate(estimate.classes)}
    values = np.full((len(times) - 1, len(column)), -np.inf)
    for row in rows:
        inside = (times[:-1] >= row.onset) & (times[1:] <= row.offset)
        own = values[inside, column[row.label]]
        values[inside, column[row.label]] = np.maximum(own, 1.0 if row.confidence is None else row.confidence)
    return values, times
