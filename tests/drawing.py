"""Figures in tests. Commands draw them by the dozen, and drawing takes longer than most of what else they do.

Files of figures are therefore blank, except in tests of what is in them, or of whether they can be drawn: these use the
fixture `drawn_figures` or, in fixtures of their own, `drawn`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from matplotlib.figure import Figure

from earmark import plots

_draw = plots.draw


def _draw_blank(figure: Figure, *target: Any, **options: Any) -> None:
    """As `plots.draw`, without what is in the figure."""
    _draw(Figure(figsize=(1, 1)), *target, **options)


@contextmanager
def _drawing_with(function: Callable[..., None]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (plots, plots.style):
            patch.setattr(module, "draw", function)
        yield


@contextmanager
def blank() -> Iterator[None]:
    """Figures are blank within this block."""
    with _drawing_with(_draw_blank):
        yield


@contextmanager
def drawn() -> Iterator[None]:
    """Figures are drawn within this block."""
    with _drawing_with(_draw):
        yield
