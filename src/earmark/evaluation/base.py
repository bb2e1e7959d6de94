"""What every judgement shares: labels as columns over common clips and classes, counts per clip, and scores from them.

Counts come first and ratios last. A module of this room counts, clip by clip (`Counts`); `scores` adds the clips up and
divides. A bootstrap over clips is the same counts added up with other weights (`tally`).

Zero division follows one of two conventions, chosen where scores are made:

`"sed_eval"` (default)
    What the package sed_eval gives, to the last digit. Precision is NaN for a class that was never estimated, recall
    for one without reference, and F1 is NaN if either is; the macro average leaves NaN out, **so that a detector is not
    punished for a class that it never finds**. Rates have 2.2e-16 added to what they are divided by: without any
    reference an error rate is 0, or some 4.5e15 for each false alarm, and so is its macro average.
`"plain"`
    A ratio is NaN where its divisor is 0, and only there. F1 is 2 tp / (2 tp + fp + fn): 0 for a class that is there
    and never found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.formats import read_labels

__all__ = [
    "Counts",
    "Differences",
    "Events",
    "Labels",
    "Pair",
    "Ratios",
    "Scores",
    "Tally",
    "as_table",
    "common_names",
    "compare_names",
    "mean_known",
    "paired",
    "ratio",
    "scores",
    "tally",
    "tally_without_each",
]

Labels: TypeAlias = LabelTable | str | os.PathLike[str] | Iterable[Label | tuple[object, ...]]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_CONVENTIONS = ("sed_eval", "plain")
_MISSING = ("error", "empty")
_EPS = float(np.spacing(1.0))  # what sed_eval adds to divisors


def as_table(labels: Labels) -> LabelTable:
    """Labels as a table: a table as it is, rows (filename, onset, offset, label), or a file or folder to be read.

    >>> as_table([("a.wav", 0.5, 1.5, "dog")])
    <LabelTable: 1 rows, 1 files, 1 classes>
    """
    if isinstance(labels, LabelTable):
        return labels
    if isinstance(labels, str | os.PathLike):
        return read_labels(labels)
    return LabelTable(labels)


@dataclass(frozen=True)
class Differences:
    """Names that only one of two tables has; all empty where they match."""

    files_without_estimate: list[str]
    files_without_reference: list[str]
    labels_without_estimate: list[str]
    labels_without_reference: list[str]


def compare_names(reference: Labels, estimate: Labels) -> Differences:
    """Which names of files and labels do not match. Labels are those of the rows.

    >>> compare_names([("a.wav", 0, 1, "dog")], [("a.WAV", 0, 1, "dog")])
    Differences(files_without_estimate=['a.wav'], files_without_reference=['a.WAV'],
                labels_without_estimate=[], labels_without_reference=[])
    """
    ours, theirs = as_table(reference), as_table(estimate)
    our_labels, their_labels = (dict.fromkeys(row.label for row in table) for table in (ours, theirs))
    return Differences(
        _lacking(ours.filenames, theirs.filenames),
        _lacking(theirs.filenames, ours.filenames),
        sorted(_lacking(our_labels, their_labels)),
        sorted(_lacking(their_labels, our_labels)),
    )


class Events(NamedTuple):
    """Events as columns of one length: index of the clip, index of the class, onset and offset in seconds."""

    clip: Integers
    label: Integers
    onset: Floats
    offset: Floats


@dataclass(frozen=True)
class Pair:
    """Reference and estimate over the same clips and classes.

    `known`, (clips, classes), is False where the reference does not say whether or when: these cells are left out of
    every count, whatever was estimated there. Events of such cells are not in `reference` and `estimate`.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    reference: Events
    estimate: Events
    known: npt.NDArray[np.bool_]


def common_names(
    reference: LabelTable,
    estimate: LabelTable,
    *,
    classes: Iterable[str] | None = None,
    filenames: Iterable[str] = (),
    missing: str = "error",
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Clips and classes that are judged, in the order of the reference; arguments as for `paired`."""
    if missing not in _MISSING:
        raise unknown_name("missing", missing, _MISSING)
    names = dict.fromkeys((*reference.filenames, *filenames))
    labels = dict.fromkeys(reference.classes if classes is None else classes)
    if missing == "empty":
        names.update(dict.fromkeys(estimate.filenames))
        if classes is None:
            labels.update(dict.fromkeys(row.label for row in estimate))
    elif unknown := _lacking(estimate.filenames, names):
        raise DataError(
            f"the estimate has {_some(unknown, 'file')} that the reference does not have; "
            "rename them, list them as clips of the reference, or take these as empty with missing='empty'"
        )
    for side, table in (("reference", reference), ("estimate", estimate)):
        if unknown := _lacking(table.classes, labels) and sorted({row.label for row in table}.difference(labels)):
            raise DataError(
                f"the {side} has {_some(unknown, 'label')} outside the classes judged ({', '.join(labels)}); "
                "rename them, or name them in classes"
            )
    return tuple(names), tuple(labels)


def paired(
    reference: Labels,
    estimate: Labels,
    *,
    classes: Iterable[str] | None = None,
    filenames: Iterable[str] = (),
    missing: str = "error",
) -> Pair:
    """Both sides as columns, over the clips of the reference in its order.

    A clip of the reference that the estimate does not have is one in which nothing was found.

    Parameters
    ----------
    classes
        Classes that are judged; a label outside is an error. By default those of the reference.
    filenames
        Clips that are judged besides those of the reference: listened to, heard nothing.
    missing
        What happens to an estimate whose file or label the reference lacks. "error" says which; "empty" counts it,
        against a reference in which nothing is heard. Nothing is dropped.
    """
    ours, theirs = as_table(reference), as_table(estimate)
    names, labels = common_names(ours, theirs, classes=classes, filenames=filenames, missing=missing)
    clip, column = ({name: c for c, name in enumerate(part)} for part in (names, labels))
    (truth, untimed), (said, unplaced) = (_events(table, clip, column) for table in (ours, theirs))
    for row in unplaced:
        if row.present is not False:
            raise DataError(f"the estimate says that {row.label!r} is in {row.filename!r}, but not when")
    known = np.full((len(names), len(labels)), ours.complete)
    for row in sorted(untimed, key=lambda row: row.present is not False):  # unknown outweighs absent
        known[clip[row.filename], column[row.label]] = row.present is False
    known[truth.clip, truth.label] = True  # and times outweigh both
    judged = known[said.clip, said.label]
    said = Events(said.clip[judged], said.label[judged], said.onset[judged], said.offset[judged])
    return Pair(names, labels, truth, said, known)


@dataclass(frozen=True)
class Counts:
    """What was right and wrong, clip by clip.

    `tp`, `fp`, `fn` and `tn` are (clips, classes); `tn` is None where there is no such thing. `substitutions`,
    `deletions` and `insertions` are (clips,), over all classes.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    tp: Integers
    fp: Integers
    fn: Integers
    tn: Integers | None
    substitutions: Integers
    deletions: Integers
    insertions: Integers

    @property
    def n_ref(self) -> Integers:
        """What the reference has: (clips, classes)."""
        return self.tp + self.fn

    @property
    def n_est(self) -> Integers:
        """What the estimate has: (clips, classes)."""
        return self.tp + self.fp

    def select(self, clips: npt.ArrayLike) -> Counts:
        """Counts of some of the clips, by index; one may come twice."""
        index = np.asarray(clips)
        parts = {name: value[index] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, filenames=tuple(self.filenames[i] for i in index), **parts)


@dataclass(frozen=True)
class Ratios:
    """One line of a table of results; NaN where a ratio has no meaning, as an accuracy without true negatives.

    `accuracy` is (tp + tn) / all. `sensitivity` is recall, but by sed_eval's convention 0, not NaN, without reference;
    `balanced_accuracy` is the mean of it and `specificity`. A single class has no substitutions: there every miss is a
    deletion and every false alarm an insertion. Counts of a macro average are NaN.
    """

    f1: float
    precision: float
    recall: float
    error_rate: float
    substitution_rate: float
    deletion_rate: float
    insertion_rate: float
    accuracy: float
    sensitivity: float
    specificity: float
    balanced_accuracy: float
    n_ref: float = float("nan")
    n_est: float = float("nan")


@dataclass(frozen=True)
class Scores:
    """Results: `overall` (micro-averaged: all classes together), `macro` (mean over classes) and `per_class`.

    `substitution_rate` of single classes is 0, so of their mean.
    """

    overall: Ratios
    macro: Ratios
    per_class: dict[str, Ratios]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries of numbers."""
        return asdict(self)


class Tally(NamedTuple):
    """Results as arrays: `overall` and `macro` by name, (...,), and `per_class` by name, (..., classes)."""

    overall: dict[str, Floats]
    macro: dict[str, Floats]
    per_class: dict[str, Floats]


def tally(counts: Counts, weights: npt.ArrayLike | None = None, *, convention: str = "sed_eval") -> Tally:
    """Ratios of counts added up over clips.

    Parameters
    ----------
    weights : (..., clips)
        How often each clip counts; by default once. The results of resampled clips have the shape of its first axes.
    convention
        What happens on division by zero: "sed_eval" or "plain"; the door of this module says what they mean.
    """
    if convention not in _CONVENTIONS:
        raise unknown_name("convention", convention, _CONVENTIONS)
    w = np.ones(len(counts.filenames)) if weights is None else np.asarray(weights, np.float64)
    if w.shape[-1:] != (len(counts.filenames),):
        raise ArgumentError(f"weights of shape (..., {len(counts.filenames)}) expected, one per clip, found {w.shape}")
    return _tally([w @ part for part in _parts(counts)], convention)


def tally_without_each(counts: Counts, *, convention: str = "sed_eval") -> Tally:
    """Ratios of all clips but one, for each of them in turn: what `tally` gives for weights 1 - I, in linear time."""
    return _tally([part.sum(0) - part for part in _parts(counts)], convention)


def _parts(counts: Counts) -> list[Floats]:
    """What is added up, as numbers that can be weighted."""
    tn = np.full(counts.tp.shape, np.nan) if counts.tn is None else counts.tn
    every = (counts.tp, counts.fp, counts.fn, tn, counts.substitutions, counts.deletions, counts.insertions)
    return [part.astype(np.float64) for part in every]


def _tally(sums: Sequence[Floats], convention: str) -> Tally:
    tp, fp, fn, tn, subs, dels, ins = sums
    per_class = _ratios(tp, fp, fn, tn, np.zeros_like(fn), fn, fp, convention)
    overall = _ratios(tp.sum(-1), fp.sum(-1), fn.sum(-1), tn.sum(-1), subs, dels, ins, convention)
    macro = {name: mean_known(value) for name, value in per_class.items() if name not in ("n_ref", "n_est")}
    return Tally(overall, macro, per_class)


class ratio:
    """The statistic that is a ratio of `Ratios`: average "overall", "macro" or "per_class"."""

    def __init__(self, name: str = "f1", average: str = "overall", convention: str = "sed_eval") -> None:
        if average not in Tally._fields:
            raise unknown_name("average", average, Tally._fields)
        self._name, self._average, self._convention = name, average, convention
        self.__name__ = name if average == "overall" else f"{average}.{name}"

    def __call__(self, counts: Counts, weights: Floats) -> Floats:
        """Of clips that count as often as weights say."""
        return self._of(tally(counts, weights, convention=self._convention))

    def without_each(self, counts: Counts) -> Floats:
        """Of all clips but one, for each of them."""
        return self._of(tally_without_each(counts, convention=self._convention))

    def _of(self, found: Tally) -> Floats:
        values: dict[str, Floats] = getattr(found, self._average)
        if self._name not in values:
            raise unknown_name("statistic", self._name, values)
        return values[self._name]


def scores(counts: Counts, *, convention: str = "sed_eval") -> Scores:
    """Results over all clips; `convention` as for `tally`."""
    overall, macro, per_class = tally(counts, convention=convention)
    return Scores(
        Ratios(**{name: float(value) for name, value in overall.items()}),
        Ratios(**{name: float(value) for name, value in macro.items()}),
        {
            label: Ratios(**{name: float(value[c]) for name, value in per_class.items()})
            for c, label in enumerate(counts.classes)
        },
    )


def mean_known(values: Floats) -> Floats:
    """Mean over the last axis of what is not NaN; NaN where everything is."""
    there = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(there, values, 0.0).sum(-1) / there.sum(-1))


def _ratios(
    tp: Floats, fp: Floats, fn: Floats, tn: Floats, subs: Floats, dels: Floats, ins: Floats, convention: str
) -> dict[str, Floats]:
    n_ref, n_est = tp + fn, tp + fp
    eps = _EPS if convention == "sed_eval" else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        precision, recall = _over(tp, n_est), _over(tp, n_ref)
        if convention == "sed_eval":
            f1 = 2 * precision * recall / (precision + recall)
            f1 = np.where((precision == 0) & (recall == 0), 0.0, f1)
        else:
            f1 = _over(2 * tp, n_ref + n_est)
        rates = [_over(part, n_ref + eps) for part in (subs, dels, ins)]
        sensitivity, specificity = _over(tp, n_ref + eps), _over(tn, tn + fp + eps)
        return {
            "f1": f1,
            "precision": precision,
            "recall": recall,
            "error_rate": rates[0] + rates[1] + rates[2],
            "substitution_rate": rates[0],
            "deletion_rate": rates[1],
            "insertion_rate": rates[2],
            "accuracy": _over(tp + tn, tp + tn + fn + fp + eps),
            "sensitivity": sensitivity,
            "specificity": specificity,
            "balanced_accuracy": 0.5 * sensitivity + 0.5 * specificity,
            "n_ref": n_ref,
            "n_est": n_est,
        }


def _over(part: Floats, whole: Floats) -> Floats:
    """A ratio; NaN where the divisor is 0."""
    return np.asarray(part / np.where(whole == 0, np.nan, whole), np.float64)


def _events(table: LabelTable, clip: Mapping[str, int], column: Mapping[str, int]) -> tuple[Events, list[Label]]:
    """Rows with times, as columns, and rows without."""
    timed, untimed = list(table), []
    if None in map(itemgetter(1), timed):
        untimed = [row for row in timed if row.onset is None]
        timed = [row for row in timed if row.onset is not None]
    names, onsets, offsets, labels = (map(itemgetter(k), timed) for k in range(4))
    n = len(timed)
    return Events(
        np.fromiter(map(clip.__getitem__, names), np.int64, n),
        np.fromiter(map(column.__getitem__, labels), np.int64, n),
        np.fromiter(onsets, np.float64, n),
        np.fromiter(offsets, np.float64, n),
    ), untimed


def _lacking(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Names that are not among the others, in order."""
    known = set(others)
    return [name for name in names if name not in known]


def _some(names: Sequence[str], what: str) -> str:
    """How many, and the first of them: 5 files (..., ..., ...)."""
    shown = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({shown})"
