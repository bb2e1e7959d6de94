"""The callback `on_progress` of long-running functions, which receives `Progress` values."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["OnProgress", "Progress", "ignore_progress"]


@dataclass(frozen=True)
class Progress:
    """State of one stage of a longer task; stages follow each other, and one may occur more than once."""

    stage: str  # "features", "training"
    done: float = 0  # in `unit`
    total: float | None = None  # None if it is not known
    unit: str = ""
    detail: str = ""  # for display


OnProgress = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """Do nothing."""
