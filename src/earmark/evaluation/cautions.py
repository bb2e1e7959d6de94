"""What one should know before believing scores, each in a line: too few clips, clips that the model knows, and labels
that do not say when."""

from __future__ import annotations

from collections.abc import Sequence

from earmark.annotations import LabelTable
from earmark.evaluation.base import Counts

__all__ = ["FEW_CLIPS", "FEW_OF_CLASS", "rough_notes", "seen_notes", "untimed_notes"]

FEW_CLIPS = 30
FEW_OF_CLASS = 5
_MOST = 3  # classes that are named
_SEEN = {"train": "these clips were trained on", "validate": "training chose its epoch by these clips"}
_REMEDY = "labels with onsets and offsets (--reference FILE) would give them"


def rough_notes(static: Counts) -> tuple[str, ...]:
    """A line if fewer than 30 clips were judged, or a class is in some of them but in fewer than 5; or none.

    Parameters
    ----------
    static
        Counts of clips; a class that the reference knows nowhere has no numbers that could be rough.
    """
    n = len(static.filenames)
    scarce = [c for c, k in zip(static.classes, static.n_ref.sum(0).tolist(), strict=True) if 0 < k < FEW_OF_CLASS]
    judged = f"only {n} clip{' was' if n == 1 else 's were'} judged" if n < FEW_CLIPS else ""
    rare = f"{_named(scarce)} {_are(scarce)} in fewer than {FEW_OF_CLASS} clips" if scarce else ""
    said = ", and ".join(filter(None, (judged, rare)))
    return (f"the numbers are rough: {said}; more clips would make them surer",) if said else ()


def seen_notes(split: str) -> tuple[str, ...]:
    """A line if a model that was trained on a data set is judged on clips of this split of it; or none.

    >>> print(*seen_notes("train"))
    these clips were trained on, so the scores flatter the model; clips that it does not know say what it is worth
    >>> seen_notes("test")
    ()
    """
    what = _SEEN.get(split)
    say = "so the scores flatter the model; clips that it does not know say what it is worth"
    return (f"{what}, {say}",) if what else ()


def untimed_notes(reference: LabelTable, estimate: LabelTable) -> tuple[str, ...]:
    """A line if times are missing where scores of segments and events need them; or none.

    >>> weak, strong = LabelTable([("a.wav", None, None, "dog")]), LabelTable([("a.wav", 0, 1, "dog")])
    >>> print(*untimed_notes(weak, strong))
    no scores of segments and events: the reference says only that a class is in a clip, not when; \
labels with onsets and offsets (--reference FILE) would give them
    >>> untimed_notes(strong, strong)
    ()
    """
    present = {row.label for row in reference if row.present}
    timed = {row.label for row in reference if row.has_times}
    if present and not timed:
        what = "the reference says only that a class is in a clip, not when"
        return (f"no scores of segments and events: {what}; {_REMEDY}",)
    if len(estimate) and not any(row.has_times for row in estimate):
        what = "what was found says only that a class is in a clip, not when"
        return (f"no scores of segments and events: {what}; events with onsets and offsets would give them",)
    without = [label for label in reference.classes if label in present - timed]
    if not without:
        return ()
    clips = f"of {_named(without)} the reference says only that {_it(without)} {_are(without)} in a clip, not when"
    return (f"{clips}, so scores of segments and events leave out such clips; {_REMEDY}",)


def _named(classes: Sequence[str]) -> str:
    more = len(classes) - _MOST
    return ", ".join(classes[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _are(classes: Sequence[str]) -> str:
    return "is" if len(classes) == 1 else "are"


def _it(classes: Sequence[str]) -> str:
    return "it" if len(classes) == 1 else "they"
