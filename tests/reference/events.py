"""Events out of probabilities, said as slowly and plainly as possible."""

import math
from itertools import pairwise

import numpy as np


def decode(p, hop, threshold, low, median, min_duration, min_gap, boxes=0.0, duration=None):
    """Events (onset, offset, confidence) of one class, from its probabilities (frames,)."""
    half = int(median / (2 * hop) + 1e-6)
    smooth = []
    for k in range(len(p)):
        window = [p[min(max(j, 0), len(p) - 1)] for j in range(k - half, k + half + 1)]
        smooth.append(sorted(window)[half])
    if window := int(boxes / hop + 1e-6):
        smooth = box_means(np.array(smooth, p.dtype), window)

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


def box_means(p, window, longest=20):
    """Each probability (frames,) replaced by the mean between the change points around it."""
    n, values = len(p), [round(float(value) * 2**40) for value in p]

    def change(k):
        return sum(values[min(max(j, 0), n - 1)] * (1 if j >= k else -1) for j in range(k - window, k + window))

    changes = {k: change(k) for k in range(-window, n + window)} if n else {}
    edges = [0]
    for k in range(1, n):
        for sign in (1, -1):
            here = sign * changes[k]
            is_first = all(here > sign * changes[j] for j in range(k - window, k))
            if here > 0 and is_first and all(here >= sign * changes[j] for j in range(k + 1, k + window + 1)):
                while k - edges[-1] > longest * window:
                    edges.append(edges[-1] + longest * window)
                edges.append(k)
    while n - edges[-1] > longest * window:
        edges.append(edges[-1] + longest * window)
    edges.append(n)
    means = [sum(values[a:b]) / (b - a) / 2**40 for a, b in pairwise(edges) for _ in range(a, b)]
    return np.array(means, p.dtype)


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
