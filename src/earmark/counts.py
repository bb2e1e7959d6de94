"""Counts of right and wrong decisions, and the ratios computed from them.

Every metric counts first and divides last: it counts clip by clip (`Counts`), and `scores` adds the clips up and
divides. A bootstrap over clips adds the same counts up with other weights (`ratios`, `ratio`).

There are two conventions for division by zero:

`"plain"` (default)
    A ratio is NaN where its divisor is 0, and only there. F1 is 2 tp / (2 tp + fp + fn), which is 0 for a class that
    the reference has and the estimate never has. Averages over classes leave NaN out.
`"sed_eval"`
    The results of the package sed_eval, to the last digit. Precision is NaN for a class that was never estimated,
    recall for one without reference, and F1 is NaN if either is; the macro average leaves NaN out, **so a class that
    is never detected does not lower the macro F1**. Rates have 2.2e-16 added to their divisor: without any reference,
    an error rate is 0, or about 4.5e15 for each false alarm, and so is its macro average.

The two differ only where a class, or everything, has no reference or no estimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, unknown_name
from earmark.tables import Cell, Column, Table

__all__ = ["CONVENTIONS", "Counts", "Ratios", "Scores", "ratios", "scores"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CONVENTIONS = ("plain", "sed_eval")
HEADINGS = {"f1": "F1", "precision": "P", "recall": "R", "error_rate": "error rate"}
_AVERAGES = ("overall", "macro", "per_class")
_ROWS = {"macro": "average (macro)", "micro": "all together (micro)"}
_EPS = float(np.spacing(1.0))  # what sed_eval adds to divisors


def f1_score(tp: npt.ArrayLike, fp: npt.ArrayLike, fn: npt.ArrayLike) -> Floats:
    """2 tp / (2 tp + fp + fn); NaN where all three are 0.

    >>> f1_score([3, 0, 0], [1, 2, 0], [1, 0, 0])
    array([0.75, 0.  ,  nan])
    """
    hits = 2 * np.asarray(tp, np.float64)
    return _divide(hits, hits + np.asarray(fp) + np.asarray(fn))


def nan_mean(values: npt.ArrayLike) -> Floats:
    """Mean over the last axis of everything that is not NaN; NaN where everything is."""
    values = np.asarray(values, np.float64)
    known = ~np.isnan(values)
    return _divide(np.where(known, values, 0.0).sum(-1), known.sum(-1))


@dataclass(frozen=True)
class Counts:
    """Right and wrong decisions, clip by clip.

    `tp`, `fp`, `fn` and `tn` are (clips, classes); `tn` is None if the metric has no true negatives. `substitutions`,
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
        """Positives of the reference: (clips, classes)."""
        return self.tp + self.fn

    def select(self, clips: npt.ArrayLike) -> Counts:
        """Counts of some of the clips, by index, in this order; an index may occur several times."""
        index = np.asarray(clips)
        names = tuple(self.filenames[i] for i in index)
        return replace(self, filenames=names, **{name: value[index] for name, value in self.arrays().items()})

    def in_order_of(self, other: Counts) -> Counts:
        """The same counts with clips in the order of another model's."""
        if self.filenames == other.filenames and self.classes == other.classes:
            return self
        place = {name: i for i, name in enumerate(self.filenames)}
        if set(place) != set(other.filenames) or self.classes != other.classes:
            raise ArgumentError("models can only be compared on the same clips and classes")
        return self.select([place[name] for name in other.filenames])

    def joined(self, other: Counts) -> Counts:
        """The clips of both, one after the other."""
        arrays = {name: np.concatenate([value, getattr(other, name)]) for name, value in self.arrays().items()}
        return replace(self, filenames=self.filenames + other.filenames, **arrays)

    def arrays(self) -> dict[str, Integers]:
        """Counts by name, without those that are None."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class Ratios:
    """One row of results; NaN where a ratio is undefined, as an accuracy without true negatives.

    `accuracy` is (tp + tn) / all. `sensitivity` is recall, but by sed_eval's convention 0, not NaN, without reference;
    `balanced_accuracy` is the mean of `sensitivity` and `specificity`. A single class has no substitutions: every miss
    is a deletion and every false alarm an insertion. `n_ref` and `n_est` of a macro average are NaN.
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
    """Results: `overall` (micro average: all classes together), `macro` (mean over classes) and `per_class`.

    >>> row = Counts(("a.wav",), ("dog",), *np.array([[[3]], [[1]], [[2]]]), None, *np.array([[0], [2], [1]]))
    >>> print(scores(row))
    class                   F1     P     R error rate
    dog                  0.667 0.750 0.600      0.600
    average (macro)      0.667 0.750 0.600      0.600
    all together (micro) 0.667 0.750 0.600      0.600
    """

    overall: Ratios
    macro: Ratios
    per_class: dict[str, Ratios]

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return str(self.table().to_html())

    def table(self) -> Table:
        """A row per class, and the averages."""
        return score_table(score_columns(), self._rows())

    def _rows(self) -> dict[str, dict[str, float]]:
        """Numbers of the table by row and column."""
        ratios = {**self.per_class, "macro": self.macro, "micro": self.overall}
        return {name: dict(vars(row)) for name, row in ratios.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries of numbers."""
        return asdict(self)


def score_columns(group: str = "") -> dict[str, Column]:
    """Columns of scores by name."""
    return {name: Column(text, group, lower_is_better=name == "error_rate") for name, text in HEADINGS.items()}


def score_table(
    columns: Mapping[str, Column], rows: Mapping[str, Mapping[str, float]], caption: str = "", note: str = ""
) -> Table:
    """A table of numbers by row and column. Rows are classes, `macro` and `micro`; a number may be NaN."""
    cells = [[Cell(_ROWS.get(name, name)), *(_score_cell(row[key]) for key in columns)] for name, row in rows.items()]
    return Table([Column("class", is_text=True), *columns.values()], cells, caption, note)


def score_text(value: float) -> str:
    """A score with three decimals; a hyphen where it is undefined."""
    return "-" if math.isnan(value) else f"{value:.3f}"


def _score_cell(value: float) -> Cell:
    return Cell(score_text(value), None if math.isnan(value) else value)


def scores(counts: Counts, *, convention: str = "plain") -> Scores:
    """Scores over all clips; `convention` is one of `CONVENTIONS`."""
    values = ratios(counts, convention=convention)
    overall = Ratios(**{name: float(value) for name, value in values["overall"].items()})
    macro = Ratios(**{name: float(value) for name, value in values["macro"].items()})
    per_class = {}
    for c, label in enumerate(counts.classes):
        per_class[label] = Ratios(**{name: float(value[c]) for name, value in values["per_class"].items()})
    return Scores(overall, macro, per_class)


def ratios(
    counts: Counts, weights: npt.ArrayLike | None = None, *, convention: str = "plain"
) -> dict[str, dict[str, Floats]]:
    """Ratios of counts added up over clips, by average (`overall`, `macro`, `per_class`) and name.

    `weights`, (..., clips), are the numbers of times that each clip counts, 1 by default. Ratios are (...,), and (...,
    classes) per class.
    """
    return _ratios(_weighted(_columns(counts), weights), convention)


class ratio:
    """A statistic of (counts, weights), see `earmark.evaluation.statistics`: one of `Ratios`, by name.

    `average` is "overall", "macro" or "per_class".
    """

    def __init__(self, name: str = "f1", average: str = "overall", convention: str = "plain") -> None:
        if average not in _AVERAGES:
            raise unknown_name("average", average, _AVERAGES)
        self._name, self._average, self._convention = name, average, convention
        self.__name__ = name if average == "overall" else f"{average}.{name}"

    def __call__(self, counts: Counts, weights: npt.ArrayLike | None = None) -> Floats:
        """The ratio, with weights (..., clips) as in `ratios`."""
        return self._of(_weighted(_columns(counts, pooled=self._average == "overall"), weights))

    def without_each(self, counts: Counts) -> Floats:
        """The ratio of all clips but one, for each of them in turn: weights 1 - I, in linear time."""
        columns = _columns(counts, pooled=self._average == "overall")
        return self._of(columns.sum(0) - columns)

    def _of(self, sums: Floats) -> Floats:
        values = _ratios(sums, self._convention)[self._average]
        if self._name not in values:
            raise unknown_name("statistic", self._name, values)
        return values[self._name]


def _columns(counts: Counts, *, pooled: bool = False) -> Floats:
    """Everything that is added up over clips, side by side: (clips, 4 classes + 3).

    In this order: tp of all classes, fp, fn, tn; substitutions, deletions, insertions. `pooled` adds the classes up
    first, which is all that `overall` needs.
    """
    tn = np.full(counts.tp.shape, np.nan) if counts.tn is None else counts.tn
    by_class = [counts.tp, counts.fp, counts.fn, tn]
    if pooled:
        by_class = [part.sum(1, keepdims=True) for part in by_class]
    errors = np.stack([counts.substitutions, counts.deletions, counts.insertions], axis=1)
    return np.asarray(np.concatenate([*by_class, errors], axis=1), np.float64)


def _weighted(columns: Floats, weights: npt.ArrayLike | None) -> Floats:
    if weights is None:
        return np.asarray(columns.sum(0))
    w = np.asarray(weights, np.float64)
    if w.shape[-1:] != (len(columns),):
        raise ArgumentError(f"expected weights of shape (..., {len(columns)}), one per clip, got {w.shape}")
    return np.asarray(w @ columns)


def _ratios(sums: Floats, convention: str) -> dict[str, dict[str, Floats]]:
    """Ratios of sums of `_columns`, (..., 4 classes + 3)."""
    if convention not in CONVENTIONS:
        raise unknown_name("convention", convention, CONVENTIONS)
    tp, fp, fn, tn = np.split(sums[..., :-3], 4, axis=-1)
    per_class = _rows(tp, fp, fn, tn, (np.zeros_like(fn), fn, fp), convention)
    errors = (sums[..., -3], sums[..., -2], sums[..., -1])  # substitutions, deletions, insertions
    overall = _rows(tp.sum(-1), fp.sum(-1), fn.sum(-1), tn.sum(-1), errors, convention)
    macro = {name: nan_mean(value) for name, value in per_class.items() if name not in ("n_ref", "n_est")}
    return {"overall": overall, "macro": macro, "per_class": per_class}


def _rows(
    tp: Floats, fp: Floats, fn: Floats, tn: Floats, errors: tuple[Floats, Floats, Floats], convention: str
) -> dict[str, Floats]:
    """The fields of `Ratios`; `errors` are substitutions, deletions and insertions."""
    n_ref = tp + fn
    n_est = tp + fp
    precision = _divide(tp, n_est)
    recall = _divide(tp, n_ref)
    eps = 0.0
    f1 = f1_score(tp, fp, fn)
    if convention == "sed_eval":
        eps = _EPS
        mean = _divide(2 * precision * recall, precision + recall)
        f1 = np.where(tp == 0, precision + recall, mean)  # without hits both are 0 or NaN
    substitutions, deletions, insertions = [_divide(part, n_ref + eps) for part in errors]
    sensitivity = _divide(tp, n_ref + eps)
    specificity = _divide(tn, tn + fp + eps)
    return {
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "error_rate": substitutions + deletions + insertions,
        "substitution_rate": substitutions,
        "deletion_rate": deletions,
        "insertion_rate": insertions,
        "accuracy": _divide(tp + tn, tp + tn + fn + fp + eps),
        "sensitivity": sensitivity,
        "specificity": specificity,
        "balanced_accuracy": 0.5 * sensitivity + 0.5 * specificity,
        "n_ref": n_ref,
        "n_est": n_est,
    }


def _divide(part: npt.ArrayLike, whole: npt.ArrayLike) -> Floats:
    """A ratio; NaN where the divisor is 0."""
    whole = np.asarray(whole, np.float64)
    return np.asarray(part / np.where(whole == 0, np.nan, whole), np.float64)
