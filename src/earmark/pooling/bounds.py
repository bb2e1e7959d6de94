"""Bounds on the weight of one instance and on alpha, and alpha interpreted as a duration.

m is the number of instances in the bag, phi the weight of one instance. All functions take numbers or arrays, broadcast
them, and return float64; all are exact for any alpha, however large.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from earmark.errors import ArgumentError

Floats = NDArray[np.float64]


def softmax_bounds(low: ArrayLike | Tensor, high: ArrayLike | Tensor, m: ArrayLike | Tensor) -> tuple[Floats, Floats]:
    """Least and greatest value of one coordinate of a soft-max over m numbers in [low, high], Proposition 1.

    e^a / (e^a + (m-1) e^b) <= softmax(z)_i <= e^b / (e^b + (m-1) e^a), with a = low, b = high.

    >>> low, high = softmax_bounds(0.0, 1.0, m=3)
    >>> print(f"{low:.4f} {high:.4f}")
    0.1554 0.5761
    """
    a, b = _array(low), _array(high)
    if np.any(a > b):
        raise ArgumentError(f"expected low <= high, got {low!r} and {high!r}")
    others = _log_others(m)
    # 1 / (1 + e^x) as exp(-log(1 + e^x)): neither end overflows
    return np.exp(-np.logaddexp(0.0, others + (b - a))), np.exp(-np.logaddexp(0.0, others - (b - a)))


def weight_bounds(alpha: ArrayLike | Tensor, m: ArrayLike | Tensor) -> tuple[Floats, Floats]:
    """Least and greatest weight auto-pooling can give to one instance of m, Eq. (9) for alpha >= 0 and Eq. (10) for
    alpha <= 0.

    [1 / (1 + e^|alpha| (m-1)), e^|alpha| / (e^|alpha| + m-1)]. For alpha = 1 this is Eq. (7): soft-max pooling, whose
    weights are Theta(1/m). For alpha <= 0 the greatest weight goes to the smallest instance.

    >>> low, high = weight_bounds(alpha=1.0, m=26)
    >>> print(f"{low:.4f} {high:.4f}")
    0.0145 0.0981
    """
    return softmax_bounds(0.0, np.abs(_array(alpha)), m)


def max_alpha(phi: ArrayLike | Tensor, m: ArrayLike | Tensor) -> Floats:
    """Largest alpha under which no instance of m can weigh more than phi, Eq. (11): ln(phi / (1 - phi)) + ln(m - 1).

    With phi = 0.5 (Eq. (13): the smallest that lets one instance carry the vote) it is ln(m - 1).

    >>> print(f"{max_alpha(0.5, m=26):.4f}")
    3.2189
    """
    phi, m = _array(phi), _array(m)
    if np.any(m < 2) or np.any(phi < 1 / m) or np.any(phi >= 1):
        raise ArgumentError(
            f"phi: expected a value in [1/m, 1) for bags of m >= 2, got phi={phi.tolist()}, m={m.tolist()}"
        )
    return np.asarray(np.log(phi) - np.log1p(-phi) + _log_others(m))


def min_alpha(phi: ArrayLike | Tensor, m: ArrayLike | Tensor) -> Floats:
    """Smallest alpha under which the largest instance of an extremal bag still weighs phi, Eq. (12): ln(phi / (1 -
    phi)) + ln(m - 1).

    phi lies in (0, 1/m], so alpha <= 0; phi = 1/m gives 0, the mean.

    >>> print(f"{min_alpha(0.01, m=26):.4f}")
    -1.3762
    """
    phi, m = _array(phi), _array(m)
    if np.any(m < 2) or np.any(phi <= 0) or np.any(phi > 1 / m):
        raise ArgumentError(
            f"phi: expected a value in (0, 1/m] for bags of m >= 2, got phi={phi.tolist()}, m={m.tolist()}"
        )
    return np.asarray(np.log(phi) - np.log1p(-phi) + _log_others(m))


def alpha_to_active_share(alpha: ArrayLike | Tensor) -> Floats:
    """Share of a bag that must be active before auto-pooling calls the bag positive: 1 / (1 + e^alpha).

    If k of m instances are 1 and the rest 0, then P >= 1/2 exactly when alpha >= ln(m/k - 1). So alpha reads as a
    duration.

    >>> print(f"{alpha_to_active_share(1.8):.2f}")
    0.14
    """
    return np.asarray(np.exp(-np.logaddexp(0.0, _array(alpha))))


def active_share_to_alpha(share: ArrayLike | Tensor) -> Floats:
    """The alpha for which a bag turns positive at this share of active instances: ln(1/share - 1).

    >>> print(f"{active_share_to_alpha(0.5):.1f} {active_share_to_alpha(1 / 26):.4f}")
    0.0 3.2189
    """
    share = _array(share)
    if np.any(share <= 0) or np.any(share >= 1):
        raise ArgumentError(f"share: expected a value between 0 and 1, got {share.tolist()}")
    return np.asarray(np.log1p(-share) - np.log(share))


def _array(x: ArrayLike | Tensor) -> Floats:
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=float)


def _log_others(m: ArrayLike | Tensor) -> Floats:
    m = _array(m)
    if np.any(m < 1):
        raise ArgumentError(f"m: expected at least one instance, got {m.tolist()}")
    with np.errstate(divide="ignore"):  # m = 1: no others, ln 0
        return np.asarray(np.log(m - 1))
