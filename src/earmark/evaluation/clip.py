"""Clip-based metrics: whether a class occurs anywhere in a clip. These are the paper's static scores.

Probabilities and targets are (clips, classes); a target is 1, 0, or NaN for unknown, which is left out. A class is
predicted to be in a clip if its probability is at least the threshold, Eq. (3). The paper uses two probabilities, so
results carry the name of the rule:

"maximum"
    That of the most probable frame, Eq. (2): the rule in the paper's text (IV.C).
"pooled"
    The output of the pooling operator: the rule by which the static columns of Table I were actually computed.

The two differ widely for an operator such as the mean.

    evaluate(targets, P, rule="pooled")          decisions, average precision and ROC AUC
    counts(targets, P), scores(counts)           decisions alone, clip by clip
    label_counts(reference, estimate)            the same from label tables
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy

from earmark.counts import Counts, Scores, nan_mean, score_columns, score_table, scores
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.evaluation.base import Bools, Floats, Labels, as_table, common_names
from earmark.tables import Column, Table
from earmark.text import as_names

__all__ = ["ClipScores", "counts", "evaluate", "label_counts"]

_RULES = ("maximum", "pooled")


@dataclass(frozen=True)
class ClipScores(Scores):
    """Scores of decisions, and of the ranking of clips by probability, by class and averaged over classes.

    Average precision is NaN for a class without positives, ROC AUC for one without positives or without negatives.
    """

    rule: str
    average_precision: dict[str, float]
    roc_auc: dict[str, float]
    macro_average_precision: float
    macro_roc_auc: float

    def table(self) -> Table:
        """A row per class, and the averages; with the ranking in place of the error rate."""
        columns = score_columns()
        del columns["error_rate"]
        columns |= {"average_precision": Column("average precision"), "roc_auc": Column("ROC AUC")}
        rows = self._rows()
        for name, row in rows.items():
            row["average_precision"] = self.average_precision.get(name, math.nan)
            row["roc_auc"] = self.roc_auc.get(name, math.nan)
        rows["macro"] |= {"average_precision": self.macro_average_precision, "roc_auc": self.macro_roc_auc}
        return score_table(columns, rows)


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
    rule : which probabilities these are, "maximum" or "pooled"
    threshold : one for all classes, or (classes,)
    classes : their names; by default "0", "1", ...
    convention : how to divide by zero; see `earmark.counts`

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
    true, probability = _checked(targets, P)
    precision: dict[str, float] = {}
    auc: dict[str, float] = {}
    for c, label in enumerate(counted.classes):
        known = ~np.isnan(true[:, c])
        precision[label] = _average_precision(true[known, c] == 1, probability[known, c])
        auc[label] = _roc_auc(true[known, c] == 1, probability[known, c])
    return ClipScores(
        overall=decisions.overall,
        macro=decisions.macro,
        per_class=decisions.per_class,
        rule=rule,
        average_precision=precision,
        roc_auc=auc,
        macro_average_precision=float(nan_mean(list(precision.values()))),
        macro_roc_auc=float(nan_mean(list(auc.values()))),
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
    names = as_names(map(str, range(n_clips)) if filenames is None else filenames)
    labels = as_names(map(str, range(n_classes)) if classes is None else classes)
    if (len(names), len(labels)) != true.shape:
        raise ArgumentError(f"targets are {true.shape}, but {len(names)} clips and {len(labels)} classes are named")
    return _compare(names, labels, true, probability >= limit)


def label_counts(reference: Labels, estimate: Labels) -> Counts:
    """Counts of decisions, clip by clip, from labels with or without times.

    A class without an estimate in a clip counts as not detected there.

    >>> scores(label_counts([("a.wav", 0, 1, "dog")], [("a.wav", 3, 4, "dog")])).overall.f1
    1.0
    """
    true, detected = as_table(reference), as_table(estimate, may_be_empty=True)
    names, labels = common_names(true, detected)
    targets = true.replace(filenames=names, classes=labels).bag_targets().astype(np.float64)
    decisions = detected.replace(filenames=names, classes=labels).bag_targets() == 1
    return _compare(names, labels, targets, decisions)


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
    tp = (is_true & positive).astype(np.int64)
    fp = (is_false & positive).astype(np.int64)
    fn = (is_true & ~positive).astype(np.int64)
    tn = (is_false & ~positive).astype(np.int64)
    alarms, misses = fp.sum(1), fn.sum(1)
    substitutions = np.minimum(alarms, misses)
    return Counts(filenames, classes, tp, fp, fn, tn, substitutions, misses - substitutions, alarms - substitutions)


def _average_precision(true: Bools, probability: Floats) -> float:
    """The sum over thresholds of precision, weighted by the increase in recall, without interpolation.

    It is scikit-learn's `average_precision_score`, except that it is NaN, not 0, without positives.
    """
    if not true.any():
        return float("nan")
    order = np.argsort(-probability, kind="stable")
    last = np.append(np.flatnonzero(np.diff(probability[order])), len(order) - 1)  # of each tie
    hits = np.cumsum(true[order])[last]
    return float(np.sum(np.diff(hits, prepend=0) * hits / (last + 1)) / hits[-1])


def _roc_auc(true: Bools, probability: Floats) -> float:
    """The share of pairs of a positive and a negative clip that are ranked correctly, ties counting half."""
    positives = int(true.sum())
    negatives = len(true) - positives
    if not positives or not negatives:
        return float("nan")
    above = float(scipy.stats.rankdata(probability)[true].sum()) - positives * (positives + 1) / 2
    return above / (positives * negatives)
