"""What commands do in worker processes, done in this one: for tests of the results, not of how work is shared out."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def map_here(function: Callable[[Any], Any], items: Iterable[Any], **options: Any) -> Iterator[tuple[Any, Any]]:
    """As `earmark.parallel.parallel_map`, in this process."""
    for item in items:
        try:
            yield item, function(item)
        except Exception as error:
            yield item, error


def call_here(self: Any, function: Callable[[Any], Any], argument: Any, *, seconds: float) -> Any:
    """As `earmark.isolation.IsolatedProcess.call`, in this process and without its limits."""
    return function(argument)


@contextmanager
def without_workers() -> Iterator[None]:
    """Soundscapes are made, and the runs of a grid are trained, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        for user in ("earmark.experiment.cells", "earmark.synthesis.job"):
            patch.setattr(f"{user}.parallel_map", map_here)
        yield
