"""Checks of labels before training: probable mistakes, as notes for the user."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from earmark.datasets.base import Collection
from earmark.datasets.cleaning import NOTHING, by_spelling, plain
from earmark.errors import DataError
from earmark.text import counted, first_few, plural

_EMPTY = (*NOTHING, "background", "background noise", "silence")
_UNKNOWN = "empty cells mean unknown; write 0 where the class is absent"


def check_labels(data: Collection) -> list[str]:
    """Notes on class names that differ only in case or spaces, or mean "nothing"."""
    similar = [name for names in by_spelling(data.classes).values() if len(names) > 1 for name in names]
    empty = [repr(name) for name in data.classes if plain(name).replace("_", " ") in _EMPTY]
    notes = []
    if similar:
        notes.append(
            f"classes differ only in case or spaces: {', '.join(map(repr, similar))}; use one name if they are one"
        )
    if empty:
        names = f"class {plural(len(empty), 'name')} {first_few(empty)}"
        notes.append(f"{names} found; to mark a clip as empty, leave its label blank")
    return notes


def check_times(data: Collection, durations: Mapping[str, float]) -> list[str]:
    """A note on labels beyond the end of their recording (seconds by name): a wrong file, or a wrong unit of time."""
    late = [
        (row, seconds)
        for name, seconds in durations.items()
        for row in data.labels.of(name)
        if row.span and (row.span[0] > seconds or row.span[1] > seconds + 1)
    ]
    if not late:
        return []
    row, seconds = late[0]
    example = f"{row.filename} {row.onset:.10g}-{row.offset:.10g} s, which lasts {round(seconds, 1):.10g} s"
    if len(late) == 1:
        return [f"1 label lies beyond the end of its recording: {example}"]
    return [f"{counted(len(late), 'label')} lie beyond the end of their recording, the first: {example}"]


def check_examples(data: Collection, filenames: Iterable[str]) -> list[str]:
    """A note for each class without positive or without negative examples among the training clips."""
    notes = []
    for label, column in zip(data.classes, data.labels.bag_targets(filenames).T, strict=True):
        if not (column == 1).any():
            notes.append(f"class {label!r} is in no training clip: it cannot be learned")
        elif not (column == 0).any():
            hint = f"; {_UNKNOWN}" if np.isnan(column).any() else ""
            notes.append(f"class {label!r} is in every training clip: there are no negative examples{hint}")
    return notes


def check_validation(training: Collection, validation: Collection) -> list[str]:
    """A note on the classes that no validation clip has, although training clips do."""
    learned = (training.labels.bag_targets() == 1).sum(axis=0)
    validated = (validation.labels.bag_targets() == 1).any(axis=0)
    missing = [
        f"{label!r} (in {counted(int(n), 'training clip')})"
        for label, n, is_validated in zip(training.classes, learned, validated, strict=True)
        if n and not is_validated
    ]
    if not missing:
        return []
    classes, it = _classes_are(missing), plural(len(missing), "it", "them")
    return [f"{classes} in no validation clip: validation cannot assess {it}; label more recordings of {it}"]


def check_folds(training: Collection) -> list[str]:
    """A note on the classes that occur in a single clip, which cross-validation cannot assess."""
    counts = (training.labels.bag_targets() == 1).sum(axis=0)
    single = [repr(label) for label, n in zip(training.classes, counts, strict=True) if n == 1]
    if not single:
        return []
    classes, it = _classes_are(single), plural(len(single), "it", "them")
    return [f"{classes} in one clip only: cross-validation counts {it} as missed; label more recordings of {it}"]


def _classes_are(names: Sequence[str]) -> str:
    """The beginning of a sentence about classes: "classes 'cat', 'dog' are"."""
    return f"{plural(len(names), 'class', 'classes')} {first_few(names)} {plural(len(names), 'is', 'are')}"


def refuse_names(data: Collection) -> None:
    """Reject class names that tables of events cannot store."""
    for name in data.classes:
        if name != name.strip() or any(char in name for char in "\t\n\r"):
            raise DataError(f"class {name!r}: expected a name without tabs, line breaks and white space at its ends")


def refuse_without_negatives(data: Collection) -> None:
    """Reject labels without any negative; with times, clips are negative outside events."""
    targets = data.labels.bag_targets()
    is_timed = any(row.has_times for row in data.labels)
    if is_timed or (targets == 0).any() or not (targets == 1).any():
        return
    if np.isnan(targets).any():
        raise DataError(f"every known label is positive: there are no negative examples; {_UNKNOWN}")
    raise DataError(
        f"every training clip has {first_few(map(repr, data.classes))}: there are no negative examples; add recordings "
        f"without {plural(len(data.classes), 'it', 'them')}, with an empty label"
    )
