"""Clip-based metrics: is a class somewhere in the clip or not. The static scores of the paper.

Probabilities and targets are (clips, classes); a target is 1, 0, or NaN for unknown, which is left out. A class is
predicted to be in a clip if its probability is at least the threshold, Eq. (3). The paper uses two probabilities, so
results carry the name of the rule:

"maximum"
    That of the most probable frame, Eq. (2): the rule in the text (IV.C).
"pooled"
    The output of the pooling operator: the rule by which the static columns of Table I were in fact computed.

For an operator like the mean, they are far apart.

    evaluate(targets, P, rule="pooled")          decisions, average precision and ROC AUC
    counts(targets, P), scores(counts)           decisions alone, clip by clip
    label_counts(reference, estimate)            the same from label tables
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from earmark.annotations import LabelTable
from earmark.counts import Counts, Scores, nan_mean, scores
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation.base import Labels, as_table, common_names

__all__ = ["ClipScores", "average_precision", "counts", "evaluate", "label_counts", "roc_auc", "scores"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_RULES = ("maximum", "pooled")


@dataclass(frozen=True)
class ClipScores(Scores):
    """Scores of decisions, and of the ranking of clips by probability, by class and averaged over classes."""

    rule: str
    average_precision: dict[str, float]
    roc_auc: dict[str, float]
    macro_average_precision: float
    macro_roc_auc: float


def evaluate(
    targets: npt.ArrayLike,
    P: npt.ArrayLike,
    *,
    rule: str,
    threshold: npt.ArrayLike = 0.5,
    classes: Sequence[str] | None = None,
    convention: str = "plain",
) -> ClipScores:
    """Precision, recall and F1 at the threshold, average precision and ROC AUC: micro, macro and per class.

    Parameters
    ----------
    targets : (clips, classes), 1, 0 or NaN
    P : (clips, classes), the probabilities that are compared with the threshold
    rule
        Which probabilities these are: "maximum" or "pooled".
    threshold
        One for all classes, or (classes,).
    classes
        Their names; by default "0", "1", ...
    convention
        "plain" or "sed_eval": how to divide by zero; see `earmark.counts`.

    Examples
    --------
    >>> targets = [[1, 0], [0, float("nan")], [1, 1]]
    >>> result = evaluate(targets, [[0.9, 0.2], [0.6, 0.9], [0.7, 0.5]], rule="pooled", classes=["dog", "cat"])
    >>> result.per_class["dog"].recall, result.per_class["cat"].precision, result.macro_average_precision
    (1.0, 1.0, 1.0)
    """
    if rule not in _RULES:
        raise unknown_name("rule", rule, _RULES)
    counted = counts(targets, P, threshold=threshold, classes=classes)
    decisions = scores(counted, convention=convention)
    precision, auc = average_precision(targets, P), roc_auc(targets, P)
    return ClipScores(
        decisions.overall,
        decisions.macro,
        decisions.per_class,
        rule,
        dict(zip(counted.classes, precision.tolist(), strict=True)),
        dict(zip(counted.classes, auc.tolist(), strict=True)),
        float(nan_mean(precision)),
        float(nan_mean(auc)),
    )


def counts(
    targets: npt.ArrayLike,
    P: npt.ArrayLike,
    *,
    threshold: npt.ArrayLike = 0.5,
    classes: Sequence[str] | None = None,
    filenames: Sequence[str] | None = None,
) -> Counts:
    """Counts of decisions, clip by clip; arguments as for `evaluate`. By default clips too are "0", "1", ..."""
    true, probability = _checked(targets, P)
    limit = np.asarray(threshold, np.float64)
    n_clips, n_classes = true.shape
    if limit.shape not in ((), (n_classes,)):
        raise ArgumentError(f"expected one threshold, or one for each of {n_classes} classes, got {limit.shape}")
    names = tuple(map(str, range(n_clips)) if filenames is None else filenames)
    labels = tuple(map(str, range(n_classes)) if classes is None else classes)
    if (len(names), len(labels)) != true.shape:
        raise ArgumentError(f"targets are {true.shape}, but {len(names)} clips and {len(labels)} classes are named")
    return _compare(names, labels, true, probability >= limit)


def label_counts(
    reference: Labels,
    estimate: Labels,
    *,
    classes: Iterable[str] | None = None,
    filenames: Iterable[str] = (),
    missing: str = "error",
) -> Counts:
    """Counts of decisions, clip by clip, from labels with or without times.

    A class without an estimate in a clip counts as not detected there. Arguments as for
    `earmark.evaluation.base.pair_labels`.

    >>> scores(label_counts([("a.wav", 0, 1, "dog")], [("a.wav", 3, 4, "dog")])).overall.f1
    1.0
    """
    true, found = as_table(reference), as_table(estimate)
    names, labels = common_names(true, found, classes=classes, filenames=filenames, missing=missing)
    targets, decisions = (
        LabelTable(table, filenames=names, classes=labels, complete=table.complete).bag_targets()
        for table in (true, found)
    )
    return _compare(names, labels, targets.astype(np.float64), decisions == 1)


def average_precision(targets: npt.ArrayLike, P: npt.ArrayLike) -> Floats:
    """Average precision of each class: (classes,).

    The sum over thresholds of precision, weighted by the increase in recall, without interpolation: scikit-learn's
    `average_precision_score`. NaN for a class without positives, where scikit-learn has 0.
    """
    return np.array([_average_precision(*column) for column in _columns(targets, P)])


def roc_auc(targets: npt.ArrayLike, P: npt.ArrayLike) -> Floats:
    """Area under the ROC curve of each class: (classes,); scikit-learn's `roc_auc_score`.

    The share of pairs of a positive and a negative clip that are ranked correctly, ties counting half. NaN for a class
    without positives or without negatives.
    """
    return np.array([_roc_auc(*column) for column in _columns(targets, P)])


def _checked(targets: npt.ArrayLike, P: npt.ArrayLike) -> tuple[Floats, Floats]:
    true, probability = np.asarray(targets, np.float64), np.asarray(P, np.float64)
    if true.ndim != 2 or true.shape != probability.shape:
        raise ArgumentError(
            f"expected targets and probabilities of shape (clips, classes), got {true.shape} and {probability.shape}"
        )
    if not np.isin(true[~np.isnan(true)], (0, 1)).all():
        raise DataError("expected targets of 1, 0, or NaN for unknown, got other values")
    if np.isnan(probability).any():
        clip, label = np.argwhere(np.isnan(probability))[0]
        raise DataError(f"the probability of class {label} in clip {clip} is NaN")
    return true, probability


def _compare(filenames: tuple[str, ...], classes: tuple[str, ...], true: Floats, positive: Bools) -> Counts:
    is_true, is_false = true == 1, true == 0  # neither where unknown
    parts = (is_true & positive, is_false & positive, is_true & ~positive, is_false & ~positive)
    tp, fp, fn, tn = (part.astype(np.int64) for part in parts)
    alarms, misses = fp.sum(1), fn.sum(1)
    substitutions = np.minimum(alarms, misses)
    return Counts(filenames, classes, tp, fp, fn, tn, substitutions, misses - substitutions, alarms - substitutions)


def _columns(targets: npt.ArrayLike, P: npt.ArrayLike) -> list[tuple[Bools, Floats]]:
    """Truth and probability of the known clips, class by class."""
    true, probability = _checked(targets, P)
    known = ~np.isnan(true)
    return [(true[k, c] == 1, probability[k, c]) for c, k in enumerate(known.T)]


def _average_precision(true: Bools, probability: Floats) -> float:
    if not true.any():
        return float("nan")
    order = np.argsort(-probability, kind="stable")
    last = np.append(np.flatnonzero(np.diff(probability[order])), len(order) - 1)  # of each tie
    hits = np.cumsum(true[order])[last]
    return float(np.sum(np.diff(hits, prepend=0) * hits / (last + 1)) / hits[-1])


def _roc_auc(true: Bools, probability: Floats) -> float:
    positives = int(true.sum())
    negatives = len(true) - positives
    if not positives or not negatives:
        return float("nan")
    above = float(rankdata(probability)[true].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
