"""Methods ranked over splits, seeds or data sets: Friedman's test, and which methods do not differ from the best.

The paper used it for the bold numbers of Table III, over ten splits of MedleyDB. Ranks ignore how large a difference
is, and splits of the same clips are not independent: for two models on the same clips,
`earmark.evaluation.statistics.compare` has more power and gives the size of the difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from earmark.errors import ArgumentError, DataError, unknown_name

__all__ = ["Friedman", "friedman", "holm"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Friedman:
    """Methods ranked over blocks (splits, seeds or data sets); rank 1 is best.

    `p_value` is that of `f` (Iman and Davenport). `p_values` compare each method with `control`, adjusted (Holm);
    `indistinguishable` are the methods that do not differ from it, itself included.
    """

    names: tuple[str, ...]
    average_scores: tuple[float, ...]
    average_ranks: tuple[float, ...]
    chi2: float
    chi2_p_value: float
    f: float
    p_value: float
    control: str
    p_values: dict[str, float]
    indistinguishable: tuple[str, ...]


def friedman(
    scores: npt.ArrayLike,
    names: Sequence[str] | None = None,
    *,
    control: str | None = None,
    level: float = 0.95,
    lower_is_better: bool = False,
) -> Friedman:
    """Friedman's test over blocks, and which methods do not differ from the best, with Holm's correction.

    As in Demsar (2006), which the paper follows (IV.C): ties share their ranks and are not corrected for, so the test
    is conservative with many ties. Methods are compared with the control by the difference of their average ranks,
    divided by sqrt(k (k + 1) / (6 n)) for k methods and n blocks, and only if the test finds any difference at all.

    Parameters
    ----------
    scores : (blocks, methods)
    control
        The method that the others are compared with; by default the one with the best average score.
    """
    if not 0 < level < 1:
        raise ArgumentError(f"expected a level between 0 and 1, such as 0.95, got {level}")
    values = np.asarray(scores, np.float64)
    if values.ndim != 2 or min(values.shape) < 2:
        raise DataError(f"expected scores (blocks, methods), at least two of each, got shape {values.shape}")
    if np.isnan(values).any():
        raise DataError("expected scores of all methods in all blocks, got NaN; leave out such blocks")
    n, k = values.shape
    labels = tuple(str(i) for i in range(k)) if names is None else tuple(names)
    if len(labels) != k or len(set(labels)) != k:
        raise ArgumentError(f"expected {k} different names, one per method, got {list(labels)}")
    if control is not None and control not in labels:
        raise unknown_name("control", control, labels)
    better = values if lower_is_better else -values
    ranks = stats.rankdata(better, axis=1).mean(axis=0)
    chi2 = 12 * n / (k * (k + 1)) * (float(np.sum(ranks**2)) - k * (k + 1) ** 2 / 4)
    rest = n * (k - 1) - chi2
    f = (n - 1) * chi2 / rest if rest > 1e-9 else math.inf  # the same ranks in every block
    p_value = float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))
    centre = int(np.argmin(better.mean(axis=0))) if control is None else labels.index(control)
    others = [i for i in range(k) if i != centre]
    z = np.abs(ranks[others] - ranks[centre]) / math.sqrt(k * (k + 1) / (6 * n))
    adjusted = dict(zip(others, holm(2 * stats.norm.sf(z)).tolist(), strict=True))
    is_any = p_value <= 1 - level
    same = tuple(labels[i] for i in range(k) if i == centre or not is_any or adjusted[i] > 1 - level)
    return Friedman(
        labels,
        tuple(values.mean(axis=0).tolist()),
        tuple(ranks.tolist()),
        chi2,
        float(stats.chi2.sf(chi2, k - 1)),
        f,
        p_value,
        labels[centre],
        {labels[i]: p for i, p in adjusted.items()},
        same,
    )


def holm(p_values: npt.ArrayLike) -> Floats:
    """P-values adjusted for their number (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    raised = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1.0, raised)
    return adjusted
