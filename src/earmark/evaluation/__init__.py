"""Judging: clips, segments and events, with counts first and ratios last.

    from earmark.evaluation import segment
    scores = segment.evaluate(reference, estimate, segment=1.0)     label tables, rows, or files of them
    counts = segment.counts(reference, estimate, segment=1.0)       what they are made of, clip by clip

Always reference first, estimate second. Files, each importing only those before it: `base` (labels as columns, counts,
scores), `ranks` and `statistics` (intervals and tests), `authors` (the reference that the paper's Table I was scored
against), `references` (names matched, what is left out), `clip` (static scores), `segment` (dynamic scores), `event`
(whole events), `curves` (segments at every threshold), `psds` (events at every threshold), `models` (a detector,
judged), `saved` (judgements on disk), `comparison` (which is better, as far as the data say).
"""

from earmark.evaluation import (
    authors,
    base,
    clip,
    comparison,
    curves,
    event,
    models,
    psds,
    ranks,
    references,
    saved,
    segment,
    statistics,
)

__all__ = [
    "authors",
    "base",
    "clip",
    "comparison",
    "curves",
    "event",
    "models",
    "psds",
    "ranks",
    "references",
    "saved",
    "segment",
    "statistics",
]
