"""Exceptions.

    EarmarkError                         base of all expected errors
    |-- ArgumentError (ValueError)       an invalid argument: an unknown name, an impossible setting
    |-- DataError (ValueError)           unusable data: NaN, an empty bag, an incomplete file
    |-- ModelFileError (ValueError)      a model file that is damaged, foreign or newer than this earmark
    |-- DownloadError (OSError)          a file that could not be downloaded
    |-- TrainingError (ArithmeticError)  training that cannot continue: a loss of NaN
    |-- WorkerError (RuntimeError)       a worker process has died
    |-- GpuMemoryError (MemoryError)     a GPU without enough memory
    `-- MissingExtraError (ImportError)  optional packages are not installed

Each is also the builtin that a caller would expect to catch. The command line prints the message as one line and exits
with 2; other exceptions are bugs and keep their traceback.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from earmark.text import printable, visible

__all__ = [
    "ArgumentError",
    "DataError",
    "DownloadError",
    "EarmarkError",
    "GpuMemoryError",
    "MissingExtraError",
    "ModelFileError",
    "TrainingError",
    "WorkerError",
]


class EarmarkError(Exception):
    """Base of all expected errors. Its message may quote files, so control characters in it are escaped."""

    def __str__(self) -> str:
        return visible(super().__str__())


class ArgumentError(EarmarkError, ValueError):
    """An invalid argument."""


class DataError(EarmarkError, ValueError):
    """Unusable data."""


class ModelFileError(EarmarkError, ValueError):
    """An unusable model file."""


class DownloadError(EarmarkError, OSError):
    """A file that could not be downloaded."""


class TrainingError(EarmarkError, ArithmeticError):
    """Training that cannot continue."""


class WorkerError(EarmarkError, RuntimeError):
    """A worker process has died."""


class GpuMemoryError(EarmarkError, MemoryError):
    """A GPU without enough memory."""


class MissingExtraError(EarmarkError, ImportError):
    """Optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs packages that are not installed; install them with: pip install 'earmark[{extra}]'"
        )


_MOST_NAMES = 40  # listed where a similar one is suggested
_LONGEST_REASON = 200  # characters


def reason(error: BaseException) -> str:
    """The message of an exception of another library, as one short line.

    >>> reason(ValueError("not a\\n  header")), reason(EOFError())
    ('not a header', 'EOFError')
    """
    text = printable(" ".join(str(error).split())) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."


def similar_name(name: str, known: Iterable[str]) -> str | None:
    """The most similar of the known names, if any is similar.

    >>> similar_name("Atuo", ["auto", "max"])
    'auto'
    """
    lowered = {n.lower(): n for n in known}
    close = get_close_matches(name.lower(), lowered, n=1)
    return lowered[close[0]] if close else None


def unknown_name(kind: str, name: object, known: Iterable[str]) -> ArgumentError:
    """The error for an unknown name, with the most similar known one.

    >>> print(unknown_name("pool", "atuo", ["auto", "max"]))
    pool='atuo' is not known; did you mean 'auto'? Choose from: auto, max
    """
    names = list(known)
    close = similar_name(str(name), names)
    hint = f"; did you mean {close!r}?" if close else "."
    choices = f" Choose from: {', '.join(names)}" if len(names) <= _MOST_NAMES or not close else ""
    return ArgumentError(f"{kind}={name!r} is not known{hint}{choices}")
