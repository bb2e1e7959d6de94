"""How the progress of long work is reported: one callback, `on_progress`, which receives `Progress` values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["OnProgress", "Progress", "ignore_progress"]


@dataclass(frozen=True)
class Progress:
    """State of one stage of a longer task; stages follow each other, and one may occur more than once.

    Attributes
    ----------
    stage
        What is being done: "features", "training".
    done, total
        Work done so far and in all, in `unit`; `total` is None if it is not known.
    detail
        More about the current state, for display.
    """

    stage: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    detail: str = ""


OnProgress = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """Do nothing."""
