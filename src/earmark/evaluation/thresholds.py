"""Thresholds chosen on validation data, class by class.

With strong labels, the threshold with the best F1 of segments is chosen. Weak labels do not determine that score; the
mean of the F1 of clips and an estimate of the F1 of segments (`_estimated_f1`) replaces it. `benchmarks/thresholds.py`
measures how well that works.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label, LabelTable
from earmark.counts import f1_score
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import event, segment
from earmark.evaluation.base import Floats
from earmark.evaluation.scoring import EvaluationOptions, decode_all, matching_labels
from earmark.events import Decoder
from earmark.inference.scores import RecordingScores
from earmark.text import counted

THRESHOLDS = tuple(round(0.05 * i, 2) for i in range(1, 20))
"""Candidates when thresholds are tuned."""

DECODERS: dict[str, dict[str, float]] = {
    "plain": {},
    "hysteresis": {"low": 0.5},
    "median filter": {"median": 1.0},
    "joined": {"min_gap": 1.0, "min_duration": 0.3},
    "boxes": {"boxes": 0.25},
    "boxes, joined": {"boxes": 0.5, "min_gap": 1.0},
}
"""Settings that are compared when decoders are tuned; `low` is a share of the threshold."""

_FEWEST = 0.2  # share of silent segments that a threshold must have to be used in `_estimated_f1`
_DRAWS = 200  # of clips with replacement, to test whether a choice depends on a few of them
_FEWEST_WITH = 2  # clips with a class for a cautious choice: with one, all draws that contain it agree
_DOUBT, _LEAST = 0.1, 0.01  # share of draws in which a cautious choice may be worse, and the mean gain it must have


def tune_thresholds(
    recordings: Iterable[RecordingScores],
    reference: LabelTable,
    options: EvaluationOptions | None = None,
    *,
    tuned_on: str,
    cautious: bool = False,
) -> Decoder:
    """The decoder with the threshold per class that gives the best segment-based F1 on validation data.

    Without times in the reference, this F1 is estimated. Scores on the clips that thresholds were chosen on are too
    optimistic, so clips of the split "test" are rejected, and the decoder records what it was tuned on. Of equally good
    thresholds, the nearest to the decoder's is chosen; a class that no threshold detects keeps the decoder's. Its `low`
    is kept, or lowered to the threshold.

    Parameters
    ----------
    tuned_on
        Names the data, for the record; the number of clips and a fingerprint of their labels are added.
    cautious
        Whether a class keeps the decoder's threshold unless another one is better by at least 0.01 on average over
        draws of the clips with replacement, and worse in at most a tenth of them. A class that is in one clip only
        keeps it too.
    """
    options, recordings = options or EvaluationOptions(), tuple(recordings)
    table = _validation_labels(recordings, reference)
    decoder = options.decoder or Decoder()
    is_timed = any(row.is_event for row in table)
    current = np.broadcast_to(decoder.threshold, len(table.classes)).astype(np.float64)
    tried = np.unique([*THRESHOLDS, *current] if cautious else THRESHOLDS)
    decoders = [decoder.changed(threshold=threshold) for threshold in tried]
    if is_timed:
        counts, measure = _counts(recordings, table, options, decoders), _f1
    else:
        counts = _with_clips(_counts(recordings, _propagated(recordings, table), options, decoders))
        measure = _weak_f1
    best = _best(measure(counts.sum(axis=2)), tried, current)
    if cautious:
        best = np.where(_is_sure(counts, measure, tried, best, current), best, current)
    how = f"by F1 of {options.segment:g}-s segments" + ("" if is_timed else ", estimated from clip labels")
    return replace(decoder.changed(threshold=best), tuned_on=_record(tuned_on, table, how))


def tune_decoder(
    recordings: Iterable[RecordingScores],
    reference: LabelTable,
    options: EvaluationOptions | None = None,
    *,
    tuned_on: str,
) -> Decoder:
    """The decoder with the settings and the threshold per class that are best on validation data with times.

    The settings are some of `DECODERS`; the mean of the F1 of segments and of events decides. Of equally good settings,
    the first are chosen. The decoder of the options is not used. See `tune_thresholds` for the rest.
    """
    options, recordings = options or EvaluationOptions(), tuple(recordings)
    table = _validation_labels(recordings, reference)
    if not any(row.is_event for row in table):
        raise DataError("decoders are compared by events, and no label of these clips has times; tune thresholds only")
    n_classes, tried = len(table.classes), np.array(THRESHOLDS)
    best_f1 = np.zeros(n_classes)
    chosen = [Decoder()] * n_classes
    for settings in DECODERS.values():
        decoders = [_candidate(settings, threshold) for threshold in THRESHOLDS]
        counts = [_counts(recordings, table, options, decoders, by_event=by_event) for by_event in (False, True)]
        f1 = 0.5 * (_f1(counts[0].sum(axis=2)) + _f1(counts[1].sum(axis=2)))
        best = np.searchsorted(tried, _best(f1, tried, np.full(n_classes, 0.5)))
        for c in range(n_classes):
            if f1[best[c], c] > best_f1[c] + 1e-9:
                best_f1[c], chosen[c] = f1[best[c], c], decoders[best[c]]
    names = ("threshold", "median", "min_duration", "min_gap", "boxes")
    values: dict[str, Any] = {name: tuple(getattr(decoder, name) for decoder in chosen) for name in names}
    values["low"] = tuple(decoder.threshold if decoder.low is None else decoder.low for decoder in chosen)
    how = f"by F1 of {options.segment:g}-s segments and of events"
    return Decoder(**values, tuned_on=_record(tuned_on, table, how))


def _validation_labels(recordings: Sequence[RecordingScores], reference: LabelTable) -> LabelTable:
    """Labels of the recordings; those of the test split are rejected."""
    table = matching_labels(recordings, reference)
    for name in table.filenames:
        if table.splits.get(name) == "test":
            raise ArgumentError(f"{name!r} belongs to the test split; thresholds are tuned on validation data only")
    return table


def _record(tuned_on: str, table: LabelTable, how: str) -> str:
    """What a decoder records of the data that it was tuned on."""
    rows = [table.of(name) for name in sorted(table.filenames)]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    return f"{tuned_on}: {counted(len(table.filenames), 'clip')} (labels {digest}), {how}"


def _candidate(settings: Mapping[str, float], threshold: float) -> Decoder:
    """A decoder with settings of `DECODERS`."""
    low = settings["low"] * threshold if "low" in settings else None
    return Decoder(**{**settings, "threshold": threshold, "low": low})  # type: ignore[arg-type]


def _best(f1: Floats, tried: Floats, current: Floats) -> Floats:
    """The best candidate of each class, from F1 (candidates, classes); of equal ones, the nearest to the current."""
    distance = np.abs(tried[:, None] - current)
    distance[f1.round(9) < f1.max(axis=0).round(9)] = np.inf
    return np.where(f1.max(axis=0) > 0, tried[distance.argmin(axis=0)], current)


def _is_sure(
    counts: Floats, measure: Callable[[Floats], Floats], tried: Floats, best: Floats, current: Floats
) -> npt.NDArray[np.bool_]:
    """Whether the best candidate of each class also beats the current one in draws of the clips."""
    n_clips = counts.shape[2]
    draws = np.random.default_rng(0).multinomial(n_clips, np.full(n_clips, 1 / n_clips), _DRAWS)  # (draws, clips)
    f1 = measure(np.einsum("dn,fknc->fkdc", draws, counts, optimize=True))  # (candidates, draws, classes)
    label = np.arange(len(best))
    gain = f1[np.searchsorted(tried, best), :, label] - f1[np.searchsorted(tried, current), :, label]
    with_sound = (counts[0, 0] + counts[2, 0] > 0).sum(axis=0)  # clips of each class
    is_better = ((gain < 0).mean(axis=1) <= _DOUBT) & (gain.mean(axis=1) >= _LEAST)
    return np.asarray(is_better & (with_sound >= _FEWEST_WITH))


def _propagated(recordings: Sequence[RecordingScores], table: LabelTable) -> LabelTable:
    """Labels of clips as if each sound lasted for the whole clip."""
    seconds = {r.filename: r.duration for r in recordings}
    rows = [Label(row.filename, 0.0, seconds[row.filename], row.label) if row.present else row for row in table]
    return table.replace(rows=rows)


def _counts(
    recordings: Sequence[RecordingScores],
    table: LabelTable,
    options: EvaluationOptions,
    decoders: Sequence[Decoder],
    *,
    by_event: bool = False,
) -> Floats:
    """Hits, false alarms, misses and true negatives of segments: (4, decoders, clips, classes).

    With `by_event` they are those of events, which have no true negatives: 0.
    """
    durations = {r.filename: r.duration for r in recordings}
    parts = []
    for decoder in decoders:
        estimate = decode_all(recordings, decoder, options.align)
        if by_event:
            counts = event.counts(table, estimate)
        else:
            counts = segment.counts(table, estimate, segment=options.segment, durations=durations)
        tn = np.zeros_like(counts.tp) if counts.tn is None else counts.tn
        parts.append(np.stack([counts.tp, counts.fp, counts.fn, tn]))
    return np.stack(parts, axis=1).astype(np.float64)


def _f1(sums: Floats) -> Floats:
    """F1 of segments from sums of counts over clips, (4, candidates, ...) to (candidates, ...); 0 where undefined."""
    return np.nan_to_num(f1_score(*sums[:3]))


def _with_clips(counts: Floats) -> Floats:
    """Counts of segments, and whether clips are hits, false alarms or misses: (7, decoders, clips, classes)."""
    hits, false_alarms, misses, _ = counts
    return np.concatenate([counts, [hits > 0, false_alarms > 0, (hits == 0) & (misses > 0)]])


def _weak_f1(sums: Floats) -> Floats:
    """The score for weak labels: the mean of the F1 of clips and the estimated F1 of segments.

    It is 0 for a class that is in all clips or in none, for which clip labels do not distinguish right from wrong.
    """
    is_in_some = (sums[0] + sums[2] > 0) & (sums[1] + sums[3] > 0)
    return np.where(is_in_some, 0.5 * (np.nan_to_num(f1_score(*sums[4:])) + _estimated_f1(sums[:4])), 0.0)


def _estimated_f1(sums: Floats) -> Floats:
    """An estimate of the F1 of segments, from active and silent segments of clips with the class and without it.

    Let the class be active in an unknown share s of the segments of clips with it. The other segments are assumed to
    behave like those of clips without the class: at each threshold, the same share of them is silent. Then the share of
    silent segments in clips with the class is at least 1 - s times that in clips without it. The lowest ratio of the
    two shares over all thresholds is the estimate of 1 - s.
    """
    active, false_active, silent, true_silent = sums  # in clips with the class; without; with; without
    tagged, others = active + silent, false_active + true_silent
    with np.errstate(divide="ignore", invalid="ignore"):
        false_rate = false_active / others
        ratio = np.where(true_silent >= _FEWEST * others, (silent / tagged) / (1 - false_rate), 1.0)
        true = (1 - np.minimum(ratio.min(axis=0), 1.0)) * tagged
        hits = np.clip(active - false_rate * (tagged - true), 0, np.minimum(active, true))
        return np.nan_to_num(np.asarray(2 * hits / (active + false_active + true), np.float64))
