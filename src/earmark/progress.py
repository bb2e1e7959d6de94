"""The callbacks of long-running functions: `on_progress` receives `Progress` values, `on_note` lines for the user."""

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["OnNote", "OnProgress", "Progress", "ignore_note", "ignore_progress"]


@dataclass(frozen=True)
class Progress:
    """State of one stage of a longer task; stages follow each other, and one may occur more than once."""

    stage: str  # "features", "training"
    done: float = 0  # in `unit`
    total: float | None = None  # None if it is not known
    unit: str = ""
    detail: str = ""  # for display


OnProgress = Callable[[Progress], None]
OnNote = Callable[[str], None]


def ignore_progress(progress: Progress) -> None:
    """Do nothing."""


def ignore_note(note: str) -> None:
    """Do nothing."""


def renamed(on_progress: OnProgress, template: str) -> OnProgress:
    """A callback that passes progress on under another name of the stage, in which {} stands for the original one.

    >>> renamed(print, "fold 2, {}")(Progress("training", 3, 8, "epochs"))
    Progress(stage='fold 2, training', done=3, total=8, unit='epochs', detail='')
    """
    return lambda progress: on_progress(replace(progress, stage=template.format(progress.stage)))
