"""Probability distributions in Scaper's notation: a list of a name and its parameters, `["uniform", 0.5, 4]`.

    ["const", value]                           always the same
    ["choose", [a, b, ...]]                    one of a list, all equally likely
    ["uniform", low, high]                     uniform between two bounds
    ["normal", mean, deviation]                normal
    ["truncnorm", mean, deviation, low, high]  normal, truncated at both ends

A plain number is short for "const".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from earmark.errors import DataError, unknown_name

__all__ = ["Distribution", "parse_distribution"]

_PARAMETERS = {
    "const": ("value",),
    "choose": ("list",),
    "uniform": ("low", "high"),
    "normal": ("mean", "deviation"),
    "truncnorm": ("mean", "deviation", "low", "high"),
}


@dataclass(frozen=True)
class Distribution:
    """A distribution of numbers; `parse_distribution` makes and checks it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> parse_distribution(["uniform", 0.5, 4]).sample(rng)
    2.729...
    >>> parse_distribution(["choose", [1, 2, 3]]).sample(rng) in (1, 2, 3)
    True
    """

    name: str
    values: tuple[float, ...]

    def sample(self, rng: np.random.Generator) -> float:
        """Draw one number."""
        if self.name == "const":
            return self.values[0]
        if self.name == "choose":
            return self.values[int(rng.integers(len(self.values)))]
        if self.name == "uniform":
            low, high = self.values
            return float(rng.uniform(low, high))
        mean, deviation, *bounds = self.values
        if not bounds:
            return float(rng.normal(mean, deviation))
        low, high = bounds
        share = rng.uniform(ndtr((low - mean) / deviation), ndtr((high - mean) / deviation))
        return float(min(max(mean + deviation * ndtri(share), low), high))


def parse_distribution(value: object) -> Distribution:
    """The distribution that a number, or a list as at the top of this file, describes.

    >>> parse_distribution(["uniform", 4, 0.5])
    Traceback (most recent call last):
    earmark.errors.DataError: uniform: expected low <= high, got 4 and 0.5
    """
    if isinstance(value, Distribution):
        return value
    if _is_number(value):
        value = ["const", value]
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], str):
        raise DataError(f'expected a list such as ["uniform", 0.5, 4] or a number, got {value!r}')
    name, *values = value
    if name not in _PARAMETERS:
        raise unknown_name("distribution", name, _PARAMETERS)
    names = _PARAMETERS[name]
    if len(values) != len(names):
        raise DataError(f"{name}: expected {len(names)} parameters ({', '.join(names)}), got {len(values)}")
    if name == "choose":
        values = list(values[0]) if isinstance(values[0], list | tuple) else []
    if not values or not all(map(_is_number, values)):
        raise DataError(f"{name}: expected finite numbers, got {value[1:]!r}")
    _check_order(name, dict(zip(names, values, strict=False)))
    return Distribution(name, tuple(values))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_order(name: str, values: dict[str, float]) -> None:
    if values.get("deviation", 1) <= 0:
        raise DataError(f"{name}: expected a deviation above 0, got {values['deviation']}")
    if "low" not in values:
        return
    low, high = values["low"], values["high"]
    if name == "truncnorm" and low >= high:
        raise DataError(f"{name}: expected low < high, got {low} and {high}")
    if low > high:
        raise DataError(f"{name}: expected low <= high, got {low} and {high}")
