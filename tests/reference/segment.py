"""Segment-based counts, said as slowly and plainly as possible: every class in every segment of every clip."""

import math


def counts(reference, estimate, filenames, classes, segment, durations=None):
    """Per clip: tp, fp, fn, tn by class, and substitutions, deletions, insertions, from rows."""
    return [
        clip_counts(
            [row for row in reference if row[0] == name],
            [row for row in estimate if row[0] == name],
            classes,
            segment,
            None if durations is None else durations[name],
        )
        for name in filenames
    ]


def clip_counts(reference, estimate, classes, segment, duration):
    if duration is None:
        duration = max([row[2] for row in [*reference, *estimate]], default=0)
    tp, fp, fn, tn = (dict.fromkeys(classes, 0) for _ in range(4))
    substitutions = deletions = insertions = 0
    for k in range(math.ceil(duration / segment)):
        hits = misses = alarms = 0
        for label in classes:
            there = is_active(reference, label, k, segment)
            said = is_active(estimate, label, k, segment)
            if there and said:
                tp[label] += 1
                hits += 1
            elif said:
                fp[label] += 1
                alarms += 1
            elif there:
                fn[label] += 1
                misses += 1
            else:
                tn[label] += 1
        paired = min(misses, alarms)
        substitutions += paired
        deletions += misses - paired
        insertions += alarms - paired
    return tp, fp, fn, tn, substitutions, deletions, insertions


def is_active(rows, label, k, segment):
    """Whether an event of the class touches segment k."""
    return any(row[3] == label and math.floor(row[1] / segment) <= k < math.ceil(row[2] / segment) for row in rows)
