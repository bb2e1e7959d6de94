"""Numbers drawn at random, as Scaper writes them down: a list of a name and its parameters, `["uniform", 0.5, 4]`.

    ["const", value]                           always the same
    ["choose", [a, b, ...]]                    one of a list, each as likely
    ["uniform", low, high]                     anything between
    ["normal", mean, deviation]                the bell curve
    ["truncnorm", mean, deviation, low, high]  the bell curve, cut off at both ends

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
    """Where a number comes from. Made by `parse_distribution`, which checks it.

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


def parse_distribution(written: object, what: str = "distribution") -> Distribution:
    """The distribution that a list from TOML or JSON describes.

    Parameters
    ----------
    written
        A list as at the top of this file, or a number.
    what
        What it is for, in messages: "events.snr".

    >>> parse_distribution(["uniform", 4, 0.5], "events.duration")
    Traceback (most recent call last):
    earmark.errors.DataError: events.duration: 'uniform' wants low <= high, found low 4, high 0.5
    """
    if isinstance(written, int | float) and not isinstance(written, bool):
        written = ["const", written]
    if not isinstance(written, list | tuple) or not written or not isinstance(written[0], str):
        raise DataError(f'{what}: a list such as ["uniform", 0.5, 4] or a number expected, found {written!r}')
    name, *values = written
    if name not in _PARAMETERS:
        raise unknown_name(f"{what}: distribution", name, _PARAMETERS)
    wanted = _PARAMETERS[name]
    if len(values) != len(wanted):
        raise DataError(f"{what}: {name!r} takes {len(wanted)} parameters ({', '.join(wanted)}), found {len(values)}")
    if name == "choose":
        values = values[0]
        if not isinstance(values, list | tuple) or not values:
            raise DataError(f"{what}: 'choose' takes a list with something in it, found {values!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{what}: {name!r} takes finite numbers, found {value!r}")
    _check_order(what, name, dict(zip(wanted, values, strict=False)))
    return Distribution(name, tuple(values))


def _check_order(what: str, name: str, given: dict[str, float]) -> None:
    if "low" in given and given["low"] > given["high"]:
        raise DataError(f"{what}: {name!r} wants low <= high, found low {given['low']}, high {given['high']}")
    if name in ("normal", "truncnorm") and given["deviation"] <= 0:
        raise DataError(f"{what}: {name!r} wants a deviation above 0, found {given['deviation']}")
    if name == "truncnorm" and given["low"] == given["high"]:
        raise DataError(f"{what}: 'truncnorm' wants low < high, found both {given['low']}")
