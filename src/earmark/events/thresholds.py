"""Thresholds chosen on validation data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.events.decoder import Decoder
from earmark.timing import span_to_frames

__all__ = ["tune_thresholds"]

_CANDIDATES = tuple(round(0.05 * i, 2) for i in range(1, 20))


def tune_thresholds(
    scores: Mapping[str, npt.ArrayLike],
    reference: LabelTable,
    hop: float,
    *,
    tuned_on: str,
    decoder: Decoder | None = None,
    segment: float = 1.0,
    candidates: Sequence[float] = _CANDIDATES,
) -> Decoder:
    """The decoder with the threshold per class that gives the best segment-based F1 on validation data.

    Nothing in earmark calls this unasked. Thresholds chosen on the clips that are then judged flatter the model, so
    clips of the split "test" are refused, and the decoder returned says what it was tuned on.

    Parameters
    ----------
    scores
        Probabilities (frames, classes) by file name, classes as in `reference`.
    reference
        Strong labels of these files. What they leave unknown is left out.
    hop
        Seconds between frames.
    tuned_on
        What the data are, for the record; the number of clips and a fingerprint of their labels are added.
    decoder
        The other settings; by default none. Its `low` is kept, or cut to the threshold where that is below.
    segment
        Length of segments, in seconds.
    candidates
        Thresholds to try. Among equally good ones the nearest to the decoder's own is taken; a class that no candidate
        ever finds keeps the decoder's own.
    """
    decoder = decoder or Decoder()
    if not tuned_on:
        raise ArgumentError("tuned_on must say what the thresholds are tuned on")
    if not (math.isfinite(segment) and segment > 0):
        raise ArgumentError(f"segment must be a positive number of seconds, found {segment}")
    if not scores or not candidates:
        raise ArgumentError("tuning needs at least one clip and one candidate")
    seen = [name for name in scores if reference.splits.get(name) == "test"]
    if seen:
        raise ArgumentError(f"{seen[0]!r} belongs to the test split; thresholds are tuned on validation data only")
    truths = {name: _segments(reference, name, len(np.asarray(p)) * hop, segment) for name, p in scores.items()}
    if not any((truth == 1).any() for truth in truths.values()):
        raise DataError("the reference says of no class when it is active; tuning needs strong labels")
    n_classes = len(reference.classes)
    own = decoder._per_class("threshold", n_classes)
    low = None if decoder.low is None else decoder._per_class("low", n_classes)
    tries = np.array(sorted(set(candidates)), np.float64)
    trials = [
        replace(decoder, threshold=float(t), low=None if low is None else tuple(np.minimum(low, t))) for t in tries
    ]
    f1 = np.array([_segment_f1(trial, scores, truths, reference.classes, hop, segment) for trial in trials])
    distance = np.abs(tries[:, None] - own)
    distance[f1 < f1.max(axis=0)] = np.inf
    best = np.where(f1.max(axis=0) > 0, tries[distance.argmin(axis=0)], own)
    digest = hashlib.sha256(repr([reference.of(name) for name in sorted(scores)]).encode()).hexdigest()[:16]
    return replace(
        decoder,
        threshold=tuple(best.tolist()),
        low=None if low is None else tuple(np.minimum(low, best).tolist()),
        tuned_on=f"{tuned_on}: {len(scores)} clips, labels {digest}, segments of {segment:g} s",
    )


def _segments(reference: LabelTable, filename: str, duration: float, segment: float) -> npt.NDArray[np.float32]:
    """What is active in which segment: (segments, classes), with NaN for unknown."""
    ends = [row.offset for row in reference.of(filename) if row.offset is not None]
    return reference.frame_targets(filename, span_to_frames(0.0, max([duration, *ends]), segment)[1], segment)


def _segment_f1(
    decoder: Decoder,
    scores: Mapping[str, npt.ArrayLike],
    truths: Mapping[str, npt.NDArray[np.float32]],
    classes: Sequence[str],
    hop: float,
    segment: float,
) -> npt.NDArray[np.float64]:
    """F1 of segments, (classes,); 0 where nothing is right."""
    tp, either = (np.zeros(len(classes)) for _ in range(2))
    for name, p in scores.items():
        found = LabelTable(decoder.decode(p, hop, classes, name), filenames=[name], classes=classes)
        guess = found.frame_targets(name, len(truths[name]), segment)
        tp += np.nansum(truths[name] * guess, axis=0)
        either += np.nansum(truths[name] + guess, axis=0)  # NaN where the truth is
    return np.divide(2 * tp, either, out=np.zeros_like(tp), where=either > 0)
