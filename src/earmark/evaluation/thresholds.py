"""Thresholds chosen on validation data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label, LabelTable
from earmark.counts import f1_score
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import segment
from earmark.evaluation.scoring import EvaluationOptions, matching_labels
from earmark.events import Decoder
from earmark.inference.scores import RecordingScores

Floats = npt.NDArray[np.float64]

_CANDIDATES = tuple(round(0.05 * i, 2) for i in range(1, 20))


def tune_thresholds(
    recordings: Iterable[RecordingScores],
    reference: LabelTable,
    options: EvaluationOptions | None = None,
    *,
    tuned_on: str,
) -> Decoder:
    """The decoder with the threshold per class that gives the best segment-based F1 on validation data.

    Thresholds chosen on the clips that are then evaluated flatter the model, so clips of the split "test" are refused,
    and the decoder records what it was tuned on. Of equally good thresholds, the nearest to the decoder's is chosen; a
    class that none detects keeps the decoder's.

    Parameters
    ----------
    reference
        Strong labels of the recordings, with their classes. What they leave unknown is left out.
    options
        Segments, alignment, and the decoder's other settings. Its `low` is kept, or lowered to the threshold.
    tuned_on
        A name of the data, for the record; the number of clips and a fingerprint of their labels are added.
    """
    options, recordings = options or EvaluationOptions(), tuple(recordings)
    table = matching_labels(recordings, reference)
    for name in table.filenames:
        if table.splits.get(name) == "test":
            raise ArgumentError(f"{name!r} belongs to the test split; thresholds are tuned on validation data only")
    if not any(row.has_times for row in table):
        raise DataError("the reference has no times; tuning needs strong labels")
    decoder = options.decoder
    tried = np.array(_CANDIDATES)
    f1 = np.stack([_f1(recordings, table, options, _with_threshold(decoder, t)) for t in tried])
    current = np.broadcast_to(decoder.threshold, f1.shape[1])
    distance = np.abs(tried[:, None] - current)
    distance[f1 < f1.max(axis=0)] = np.inf
    best = np.where(f1.max(axis=0) > 0, tried[distance.argmin(axis=0)], current)
    rows = [table.of(name) for name in sorted(table.filenames)]
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()[:16]
    clips = f"{len(recordings)} clips, labels {digest}, segments of {options.segment:g} s"
    return replace(_with_threshold(decoder, best), tuned_on=f"{tuned_on}: {clips}")


def _with_threshold(decoder: Decoder, threshold: npt.ArrayLike) -> Decoder:
    """The decoder with this threshold, (classes,) or one for all, and `low` no higher."""
    low = None if decoder.low is None else np.minimum(decoder.low, threshold).tolist()
    return replace(decoder, threshold=np.asarray(threshold).tolist(), low=low)


def _f1(
    recordings: Sequence[RecordingScores], reference: LabelTable, options: EvaluationOptions, decoder: Decoder
) -> Floats:
    """Segment-based F1 of each class, (classes,); 0 if nothing is there."""
    events: list[Label] = []
    for r in recordings:
        dense = r.dense(options.align)
        events += decoder.decode(dense, r.feature_hop, reference.classes, r.filename, duration=r.duration)
    estimate = LabelTable(events, filenames=reference.filenames, classes=reference.classes)
    durations = {r.filename: r.duration for r in recordings}
    counts = segment.counts(reference, estimate, segment=options.segment, durations=durations)
    return np.nan_to_num(f1_score(counts.tp.sum(0), counts.fp.sum(0), counts.fn.sum(0)))
