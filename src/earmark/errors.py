"""What can go wrong, as one tree.

    EarmarkError                         everything earmark raises on purpose
    |-- ArgumentError (ValueError)       a call that cannot mean anything: an unknown name, an impossible setting
    |-- DataError (ValueError)           a call that is fine with data that are not: NaN, an empty bag, half a file
    |-- ModelFileError (ValueError)      a model file that is damaged, foreign or newer than this earmark
    |-- TrainingError (ArithmeticError)  training that cannot go on: a loss that is no number
    |-- WorkerError (RuntimeError)       a process that worked for this one has died
    `-- MissingExtraError (ImportError)  a part of earmark whose optional packages are not installed

Each is also the builtin that a caller would expect to catch. A message says what came, what was expected and how to
mend it. The command line prints that message as one line and exits with 2; anything outside the tree is a bug and keeps
its traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ArgumentError",
    "DataError",
    "EarmarkError",
    "MissingExtraError",
    "ModelFileError",
    "TrainingError",
    "WorkerError",
    "unknown_name",
]


class EarmarkError(Exception):
    """Base of everything earmark raises on purpose."""


class ArgumentError(EarmarkError, ValueError):
    """A call that cannot mean anything."""


class DataError(EarmarkError, ValueError):
    """Data that cannot be used."""


class ModelFileError(EarmarkError, ValueError):
    """A model file that cannot be used."""


class TrainingError(EarmarkError, ArithmeticError):
    """Training that cannot go on."""


class WorkerError(EarmarkError, RuntimeError):
    """A process that worked for this one has died."""


class MissingExtraError(EarmarkError, ImportError):
    """An optional package is needed and absent."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed; install them with: pip install 'earmark[{extra}]'"
        )


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ArgumentError:
    """The error for a name that nothing answers to, with the nearest one that something does.

    >>> print(unknown_name("pool", "atuo", ["auto", "max"]))
    pool='atuo' is not known; did you mean 'auto'? Choose from: auto, max
    """
    names = list(known)
    lowered = {n.lower(): n for n in names}
    close = get_close_matches(str(name).lower(), lowered, n=1)
    hint = f"; did you mean {lowered[close[0]]!r}?" if close else "."
    return ArgumentError(f"{kind}={name!r} is not known{hint} Choose from: {', '.join(names)}")
