"""Notes on how far scores can be relied on: few clips, clips seen in training, labels without times."""

from __future__ import annotations

from collections.abc import Sequence

from earmark.annotations import LabelTable
from earmark.counts import Counts
from earmark.text import counted, plural

FEW_CLIPS = 30
FEW_OF_CLASS = 5
_SHOWN = 3  # classes that are named
_SEEN = {"train": "these clips were trained on", "validate": "training chose its epoch by these clips"}
_REMEDY = "evaluate against labels with onsets and offsets (--reference FILE)"


def rough_notes(static: Counts) -> tuple[str, ...]:
    """A note if fewer than 30 clips were evaluated, or if fewer than 5, but not 0, have some class; else none.

    `static` are clip-based counts.
    """
    n_clips = len(static.filenames)
    totals = zip(static.classes, static.n_ref.sum(0).tolist(), strict=True)
    rare = [label for label, n in totals if 0 < n < FEW_OF_CLASS]
    reasons = []
    if n_clips < FEW_CLIPS:
        reasons.append(f"only {counted(n_clips, 'clip')} {plural(n_clips, 'was', 'were')} evaluated")
    if rare:
        reasons.append(f"{_named(rare)} {plural(len(rare), 'is', 'are')} in fewer than {FEW_OF_CLASS} clips")
    return (f"the numbers are rough: {', and '.join(reasons)}; evaluate more clips",) if reasons else ()


def seen_notes(split: str) -> tuple[str, ...]:
    """A note if a model is evaluated on a split of its training data that training used; else none.

    >>> print(*seen_notes("train"))
    these clips were trained on, so the scores flatter the model; evaluate on clips that training did not use
    >>> seen_notes("test")
    ()
    """
    if split not in _SEEN:
        return ()
    return (f"{_SEEN[split]}, so the scores flatter the model; evaluate on clips that training did not use",)


def untimed_notes(reference: LabelTable, estimate: LabelTable) -> tuple[str, ...]:
    """A note if times are missing that segment-based and event-based scores need; else none.

    >>> weak, strong = LabelTable([("a.wav", None, None, "dog")]), LabelTable([("a.wav", 0, 1, "dog")])
    >>> print(*untimed_notes(weak, strong))
    no scores of segments and events: the reference has no times; \
evaluate against labels with onsets and offsets (--reference FILE)
    >>> untimed_notes(strong, strong)
    ()
    """
    present = {row.label for row in reference if row.present}
    timed = {row.label for row in reference if row.has_times}
    if present and not timed:
        return (f"no scores of segments and events: the reference has no times; {_REMEDY}",)
    if len(estimate) and not any(row.has_times for row in estimate):
        return ("no scores of segments and events: the estimate has no times; evaluate events with onsets and offsets",)
    untimed = [label for label in reference.classes if label in present - timed]
    if not untimed:
        return ()
    what = f"the reference has no times of {_named(untimed)}, so scores of segments and events leave out such clips"
    return (f"{what}; {_REMEDY}",)


def _named(classes: Sequence[str]) -> str:
    more = len(classes) - _SHOWN
    return ", ".join(classes[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
