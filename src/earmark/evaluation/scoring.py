"""Evaluation of a detector's frame probabilities, or of events from another program, on labelled clips.

    evaluation = evaluate_scores(scores, reference, EvaluationOptions(segment=1.0))
    evaluation = evaluate_events(events, reference, durations=durations)

An `Evaluation` has clip-based (static), segment-based (dynamic) and event-based scores, and PSDS if requested.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.counts import CONVENTIONS, Counts, Scores, scores
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation import clip, curves, event, psds, segment
from earmark.evaluation.base import Floats, FrameTimes, Labels, as_table
from earmark.evaluation.blocks import block_counts, block_length
from earmark.evaluation.curves import Curve
from earmark.evaluation.references import fingerprint, rough_notes, untimed_notes
from earmark.evaluation.result import Evaluation
from earmark.evaluation.statistics import bootstrap_ratios
from earmark.events import Decoder, decode_scores
from earmark.inference.scores import ALIGNMENTS, RecordingScores
from earmark.text import counted

TUNES = ("thresholds", "decoder")
_SCENARIOS = {"psds1": psds.SCENARIO_1, "psds2": psds.SCENARIO_2}
_INTERVALS = {  # of the scores that the paper's tables have
    "static.maximum": ("f1",),
    "static.pooled": ("f1",),
    "dynamic": ("f1", "precision", "recall", "error_rate"),
    "event": ("f1",),
}


@dataclass(frozen=True)
class EvaluationOptions:
    """How to evaluate.

    Attributes
    ----------
    segment
        Length of segments, in seconds.
    align
        Where frame probabilities lie in time, one of `earmark.inference.scores.ALIGNMENTS`.
    convention
        How to divide by zero, one of `earmark.counts.CONVENTIONS`.
    with_psds
        Whether to compute PSDS: about 15 seconds for an hour of clips.
    decoder
        How probabilities become events; by default the model's own, as for `detect`, or the paper's rule, p >= 0.5,
        where there are only probabilities. Its threshold also applies to clips, by the maximum over frames.
    tune
        What to tune on validation clips, if requested: "thresholds", or "decoder" for other settings too.
    """

    segment: float = 1.0
    align: str = "middle"
    convention: str = "plain"
    with_psds: bool = False
    decoder: Decoder | None = None
    tune: str = "thresholds"

    def __post_init__(self) -> None:
        if self.align not in ALIGNMENTS:
            raise unknown_name("align", self.align, ALIGNMENTS)
        if self.convention not in CONVENTIONS:
            raise unknown_name("convention", self.convention, CONVENTIONS)
        if self.tune not in TUNES:
            raise unknown_name("tune", self.tune, TUNES)


def evaluate_scores(
    recordings: Iterable[RecordingScores],
    reference: LabelTable,
    options: EvaluationOptions | None = None,
    *,
    about: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Evaluate a detector's probabilities.

    Parameters
    ----------
    reference
        Labels of the clips, with the classes of the recordings. Classes without times are left out of segment-based and
        event-based scores, unknown ones out of all.
    about
        Further entries of `scores.json`: model, data, split, ... Its `notes` precede those of the evaluation, and its
        `reference` names the source of the reference ("data" by default).
    """
    options = options or EvaluationOptions()
    recordings = tuple(recordings)
    table = matching_labels(recordings, reference)
    names, classes = [r.filename for r in recordings], table.classes
    durations = {r.filename: r.duration for r in recordings}
    hop = recordings[0].feature_hop
    decoder = options.decoder or Decoder()
    estimate = decode_all(recordings, decoder, options.align)
    rules = {"maximum": (np.stack([r.p.max(0) for r in recordings]), decoder.threshold)}
    if all(r.pooled is not None for r in recordings):
        rules["pooled"] = (np.array([r.pooled for r in recordings]), 0.5)
    result = _Result(options, table, estimate)
    targets = table.bag_targets(names)
    for rule, (P, threshold) in rules.items():
        result.counts[rule] = clip.counts(targets, P, threshold=threshold, classes=classes, filenames=names)
        result.scores[rule] = clip.evaluate(
            targets, P, rule=rule, threshold=threshold, classes=classes, convention=options.convention
        )
    result.add_timed(durations)
    if options.with_psds and "dynamic" in result.counts:
        dense = {r.filename: r.dense(options.align) for r in recordings}
        result.add_psds(dense, hop=hop, durations=durations)
    grid = {"hop": hop, "reduction": recordings[0].reduction, "align": options.align}
    return result.evaluation(about or {}, {"decoder": decoder.to_dict(), "grid": grid}, recordings)


def evaluate_events(
    estimate: Labels,
    reference: Labels,
    options: EvaluationOptions | None = None,
    *,
    durations: Mapping[str, float] | None = None,
    about: Mapping[str, Any] | None = None,
) -> Evaluation:
    """Evaluate events from another program, over the clips and classes of the reference.

    Parameters
    ----------
    options
        `align` and `decoder` do not apply. PSDS requires durations; it is computed from the events' confidences (1 for
        events without), not from the probabilities behind them.
    durations
        Seconds by file name, if known. Clips are then evaluated up to their end.
    about
        As for `evaluate_scores`.
    """
    options = options or EvaluationOptions()
    estimate, reference = as_table(estimate, may_be_empty=True), as_table(reference)
    if options.with_psds and durations is None:
        raise ArgumentError("PSDS counts false alarms per hour, so it needs durations of the clips")
    result = _Result(options, reference, estimate)
    result.add("maximum", clip.label_counts(reference, estimate))
    result.add_timed(durations)
    if options.with_psds and "dynamic" in result.counts and durations is not None:
        lengths = {name: durations[name] for name in reference.filenames}
        values, edges = {}, {}
        for name, duration in lengths.items():
            values[name], edges[name] = _as_frame_scores(estimate, name, duration)
        result.add_psds(values, edges=edges, durations=lengths)
    return result.evaluation(about or {}, {"decoder": None, "grid": None})


def segment_curve(evaluation: Evaluation, reference: LabelTable) -> Curve:
    """Segment-based precision and recall at every threshold, all classes pooled, of an evaluated detector."""
    recordings = evaluation.probabilities()
    if not recordings:
        raise ArgumentError("events have no thresholds other than their decoder's: a curve needs probabilities")
    align = evaluation.scores["grid"]["align"]
    return curves.curve(
        reference.select(recordings),
        {name: r.dense(align) for name, r in recordings.items()},
        segment=evaluation.scores["segment"],
        hop=evaluation.scores["grid"]["hop"],
        durations={name: r.duration for name, r in recordings.items()},
    )


def matching_labels(recordings: Sequence[RecordingScores], reference: LabelTable) -> LabelTable:
    """Labels of these recordings; fails if there are none or if classes differ."""
    if not recordings:
        raise DataError("expected at least one clip to evaluate, got none")
    table = reference.select(r.filename for r in recordings)
    for r in recordings:
        if r.classes != table.classes:
            raise ArgumentError(
                f"{r.filename}: expected probabilities of the reference's classes ({', '.join(table.classes)}), "
                f"got {', '.join(r.classes)}"
            )
    return table


def decode_all(recordings: Sequence[RecordingScores], decoder: Decoder, align: str) -> LabelTable:
    """Events of all recordings."""
    events = [event for r in recordings for event in decode_scores(r, decoder, r.filename, align=align)]
    return LabelTable(events, filenames=[r.filename for r in recordings], classes=recordings[0].classes)


class _Result:
    """Collects the counts and scores of an evaluation."""

    def __init__(self, options: EvaluationOptions, reference: LabelTable, estimate: LabelTable) -> None:
        self.options = options
        self.reference = reference
        self.estimate = estimate
        self.counts: dict[str, Counts] = {}
        self.scores: dict[str, Scores] = {}
        self.psds: dict[str, float] | None = None
        self.durations: Mapping[str, float] = {}
        self.notes: list[str] = []

    def add(self, kind: str, counts: Counts) -> None:
        self.counts[kind] = counts
        self.scores[kind] = scores(counts, convention=self.options.convention)

    def add_timed(self, durations: Mapping[str, float] | None) -> None:
        """Segments and events, if the reference has times, or is empty."""
        reference, estimate = self.reference, self.estimate
        has_times = any(row.is_event for row in reference) or not any(row.present for row in reference)
        is_weak = len(estimate) > 0 and not any(row.has_times for row in estimate)
        if has_times and not is_weak:
            self.durations = durations or {}
            counts = segment.counts(reference, estimate, segment=self.options.segment, durations=durations)
            self.add("dynamic", counts)
            self.add("event", event.counts(reference, estimate))

    def add_psds(self, values: Mapping[str, npt.ArrayLike], **times: Unpack[FrameTimes]) -> None:
        """Both scenarios, without reference events of length 0."""
        table = self.reference
        rows = [row for row in table if row.onset is None or row.onset != row.offset]
        if n_points := len(table) - len(rows):
            self.notes.append(f"PSDS leaves out {counted(n_points, 'reference event')} of length 0")
            table = table.replace(rows=rows)
        self.psds = {
            name: psds.evaluate(table, values, scenario=scenario, **times).value
            for name, scenario in _SCENARIOS.items()
        }

    def evaluation(
        self, about: Mapping[str, Any], detector: Mapping[str, Any], recordings: Sequence[RecordingScores] = ()
    ) -> Evaluation:
        static = self.counts["maximum"]
        block = block_length(self.durations, self.options.segment) if self.durations else None
        notes = [*self.notes, *untimed_notes(self.reference, self.estimate), *rough_notes(static)]
        plain = {kind: part.to_dict() for kind, part in self.scores.items()}
        values = {
            "reference": "data",
            "segment": self.options.segment,
            "convention": self.options.convention,
            "classes": list(static.classes),
            "clips": len(static.filenames),
            **about,
            "static": {"maximum": plain["maximum"], "pooled": plain.get("pooled")},
            "dynamic": plain.get("dynamic"),
            "event": plain.get("event"),
            "psds": self.psds,
            **detector,
            "reference_fingerprint": fingerprint(self.reference),
            "notes": [*about.get("notes", ()), *notes],
            "intervals": self._intervals(block),
            "interval_block": block,
        }
        others = {f"{kind}_counts": self.counts.get(kind) for kind in ("pooled", "dynamic", "event")}
        return Evaluation(values, static, **others, _estimate=self.estimate, _recordings=recordings)  # type: ignore[arg-type]

    def _intervals(self, block: float | None) -> dict[str, list[float]]:
        """Bootstrap intervals, {"dynamic.f1": [low, high]}: over clips, or over blocks of this many seconds.

        With blocks, only segment-based scores have intervals, since clips and events may extend over several blocks.
        """
        if block is None:
            parts = {part: self.counts.get(part.removeprefix("static.")) for part in _INTERVALS}
        else:
            by_block = block_counts(
                self.reference,
                self.estimate,
                segment_length=self.options.segment,
                block=block,
                durations=self.durations,
            )
            parts = {"dynamic": by_block}
        intervals: dict[str, list[float]] = {}
        for part, counts in parts.items():
            if counts is not None:
                values = bootstrap_ratios(counts, _INTERVALS[part], convention=self.options.convention)
                intervals |= {f"{part}.{name}": [low, high] for name, (_, low, high) in values.items()}
        return intervals


def _as_frame_scores(estimate: LabelTable, filename: str, duration: float) -> tuple[Floats, Floats]:
    """Events as scores that are constant between onsets and offsets: (frames, classes), and edges (frames + 1,)."""
    rows = [row for row in estimate.of(filename) if row.present and row.onset is not None and row.offset is not None]
    times = np.unique([0.0, duration, *(min(t, duration) for row in rows for t in (row.onset, row.offset) if t)])
    column = {label: c for c, label in enumerate(estimate.classes)}
    values = np.full((len(times) - 1, len(column)), -np.inf)
    for row in rows:
        inside = (times[:-1] >= row.onset) & (times[1:] <= row.offset)
        confidence = 1.0 if row.confidence is None else row.confidence
        values[inside, column[row.label]] = np.maximum(values[inside, column[row.label]], confidence)
    return values, times
