"""Events out of probabilities, said as slowly and plainly as possible."""

import math

import numpy as np


def decode(p, hop, threshold, low, median, min_duration, min_gap, duration=None):
    """Events (onset, offset, confidence) of one class, from its probabilities (frames,)."""
    half = int(median / (2 * hop) + 1e-6)
    smooth = []
    for k in range(len(p)):
        window = [p[min(max(j, 0), len(p) - 1)] for j in range(k - half, k + half + 1)]
        smooth.append(sorted(window)[half])

    spans, start = [], None
    for k, value in enumerate(smooth):
        if start is None and value >= threshold:
            start = k
        elif start is not None and value < low:
            spans.append([start, k])
            start = None
    if start is not None:
        spans.append([start, len(p)])

    merged = []
    for span in spans:
        if merged and span[0] - merged[-1][1] < math.ceil(min_gap / hop - 1e-6):
            merged[-1][1] = span[1]
        else:
            merged.append(span)

    events = []
    for first, last in merged:
        if last - first >= math.ceil(min_duration / hop - 1e-6):
            onset, offset = first * hop, last * hop
            if duration is not None:
                if onset >= duration:
                    continue
                offset = min(offset, duration)
            events.append((onset, offset, float(max(smooth[first:last]))))
    return events


def interpolate(p, factor, n_frames):
    """What scipy's interp1d gave the paper's authors: the last value holds beyond it."""
    result = np.zeros((n_frames, p.shape[1]))
    for j in range(n_frames):
        place = j / factor
        k = math.floor(place)
        if k >= len(p) - 1:
            result[j] = p[-1]
        else:
            result[j] = (1 - (place - k)) * p[k] + (place - k) * p[k + 1]
    return result


def segment_f1(truth, guess):
    """F1 of one class: truth and guess are one flag per segment; 0 where nothing is right."""
    tp = sum(1 for t, g in zip(truth, guess, strict=True) if t and g)
    wrong = sum(1 for t, g in zip(truth, guess, strict=True) if bool(t) != bool(g))
    return 2 * tp / (2 * tp + wrong) if tp else 0.0
