"""Bounds on the weight of one instance and on alpha, and alpha interpreted as a duration.

Most functions are about the weights exp(alpha p) of `auto`, `cap` and `rap`. `alpha_to_sufficient_share` and its
inverse are about the weights exp(alpha p) - 1 of `linear-auto`, `linear-cap` and `linear-rap`.

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

    If k of m instances are 1 and the rest 0, then P >= 1/2 exactly when alpha >= ln(m/k - 1). So alpha expresses a
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


def alpha_to_sufficient_share(alpha: ArrayLike | Tensor) -> Floats:
    """Share of a bag that makes it positive if it is active, whatever the other instances hold.

    The weights are those of `linear-auto`, w(p) = (exp(alpha p) - 1) / alpha with alpha >= 0. Instances of 0 have none,
    so one active instance makes a silent bag positive at any alpha; only instances in between can keep P below 1/2. P
    >= 1/2 exactly when the sum of (p - 1/2) w(p) is at least 0. An instance takes most from this sum at p = u / alpha,
    where alpha = 2 (u + 1 - e^-u). A share s of ones makes up for a share 1 - s of such instances when s / (1 - s) = 8
    sinh(u/2)^2 / (alpha (e^alpha - 1)). At alpha = 0, linear soft-max, s is 1/9.

    >>> print(f"{alpha_to_sufficient_share(0.0):.3f} {alpha_to_sufficient_share(2.0):.3f}")
    0.111 0.049
    """
    alpha = _array(alpha)
    if np.any(alpha < 0):
        raise ArgumentError(f"alpha: expected numbers of at least 0, got {alpha.tolist()}")
    a = np.maximum(alpha, 1e-12)  # the quotient is 0/0 at 0
    u = a / 4
    for _ in range(8):  # Newton's method; the function is concave, so it converges from below
        u = u + (a / 2 - u + np.expm1(-u)) / (1 + np.exp(-u))
    # ln(1/s - 1), the formula above with e^a and e^u taken out of the logarithms
    log_odds = np.log(a / 2) + a - u + np.log(-np.expm1(-a)) - 2 * np.log(-np.expm1(-u))
    return np.asarray(np.exp(-np.logaddexp(0.0, log_odds)))


def sufficient_share_to_alpha(share: ArrayLike | Tensor) -> Floats:
    """The least alpha >= 0 with which a bag is positive once this share of it is active, whatever its other instances
    hold.

    The inverse of `alpha_to_sufficient_share`; 0 for shares from 1/9 on, for which linear soft-max suffices.

    >>> print(" ".join(f"{sufficient_share_to_alpha(s):.2f}" for s in (0.01, 0.05, 0.2)))
    4.93 1.96 0.00
    """
    share = _array(share)
    if np.any(share <= 0) or np.any(share >= 1):
        raise ArgumentError(f"share: expected a value between 0 and 1, got {share.tolist()}")
    low = np.zeros_like(share)
    high = np.where(share < 1 / 9, -2 * np.log(share), 0.0)  # the share is about e^(-alpha/2), and never more
    for _ in range(60):
        middle = (low + high) / 2
        is_short = alpha_to_sufficient_share(middle) > share
        low, high = np.where(is_short, middle, low), np.where(is_short, high, middle)
    return high


def _array(x: ArrayLike | Tensor) -> Floats:
    return np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=float)


def _log_others(m: ArrayLike | Tensor) -> Floats:
    m = _array(m)
    if np.any(m < 1):
        raise ArgumentError(f"m: expected at least one instance, got {m.tolist()}")
    with np.errstate(divide="ignore"):  # m = 1: no others, ln 0
        return np.asarray(np.log(m - 1))
