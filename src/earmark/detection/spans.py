"""Recordings cut into spans that anything can execute: threads here, other machines there.

A span is a stretch of a recording, in output frames. What a span gives does not depend on who runs it, nor on where the
others lie, so that a recording's probabilities are the same however it was cut. An executor draws spans and gives their
probabilities back in any order; `score_files` puts them together again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.errors import ArgumentError, DataError
from earmark.inference.recordings import feature_frames, output_frames, score_recording
from earmark.inference.scorer import Scorer
from earmark.inference.scores import RecordingScores
from earmark.parallel import parallel_map, worker_count

__all__ = [
    "SPAN",
    "Executor",
    "LocalExecutor",
    "Plan",
    "Probabilities",
    "Results",
    "Span",
    "make_scores",
    "plan",
    "score_files",
    "score_span",
]

Probabilities = npt.NDArray[np.float32]
"""(frames', columns) as `Scorer.score` returns them."""

Results = Iterator[tuple["Span", Probabilities | Exception]]

SPAN = 600.0
"""Seconds that are run at once unless told otherwise: often enough to keep all cores busy with one recording."""


@dataclass(frozen=True)
class Span:
    """Output frames `first` up to, not including, `last` of a recording."""

    path: Path
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """How a recording is cut."""

    spans: tuple[Span, ...]
    frames: int
    """Feature frames of the recording."""
    duration: float
    """In seconds."""


class Executor(Protocol):
    """What runs spans."""

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """Each span with its probabilities, as `score_span` gives them, or with what went wrong; in any order.

        `spans` is endless for all that one knows: draw only as many as can be worked on, in the thread that iterates.
        Closing the iterator stops the work.
        """


def plan(path: Path, scorer: Scorer, *, span: float = SPAN) -> Plan:
    """Cut a recording into spans of about `span` seconds each; reads its header only."""
    if not span > 0:
        raise ArgumentError(f"span must be a positive number of seconds, found {span}")
    about = audio.info(path)
    samples = about.samples_at(scorer.rate)
    frames = output_frames(scorer, samples)
    # Edges lie where blocks meet that are scored at once, so that these are the same, and round the same, in any span.
    block = max(1, round(scorer.block / (scorer.hop * scorer.reduction)))
    size = block * max(1, round(span / (block * scorer.hop * scorer.reduction)))
    if about.format.endswith("OPUS"):
        size = frames  # decoded from its beginning, wherever one wants to be: spans would do so again and again
    spans = tuple(Span(path, first, last) for first, last in pairwise([*range(0, frames, size), frames]))
    return Plan(spans, feature_frames(scorer, samples), about.duration)


def score_span(scorer: Scorer, span: Span, *, is_stopped: Callable[[], bool] = lambda: False) -> Probabilities:
    """Probabilities of a span: (last - first, classes).

    Parameters
    ----------
    is_stopped
        Asked between blocks; once it says yes, the work ends with an error that nobody waits for.
    """
    found = np.empty((span.last - span.first, scorer.columns), np.float32)
    at = 0
    for p in score_recording(scorer, span.path, first=span.first, last=span.last):
        if is_stopped():
            raise DataError(f"{span.path}: stopped")
        found[at : at + len(p)] = p
        at += len(p)
    if at != len(found):
        raise DataError(f"{span.path}: {len(found)} frames expected, {at} found; has the file changed meanwhile?")
    return found


class LocalExecutor:
    """Runs spans on threads of this process, which share the model; each thread uses one core.

    Parameters
    ----------
    workers
        Number of threads; one per core by default.
    """

    def __init__(self, scorer: Scorer, workers: int | None = None) -> None:
        self.scorer = scorer
        self.workers = worker_count(workers)

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """See `Executor`."""
        stop = threading.Event()
        score = partial(score_span, self.scorer, is_stopped=stop.is_set)
        results = parallel_map(score, spans, workers=self.workers, limit=self.workers + 1, stop=stop)
        with closing(results):
            yield from results


@dataclass
class _Parts:
    plan: Plan
    found: dict[int, Probabilities] = field(default_factory=dict)


def score_files(
    paths: Iterable[Path],
    scorer: Scorer,
    executor: Executor,
    *,
    handle: Callable[[Path, RecordingScores | Exception], None],
    begin: Callable[[Path], None] = lambda path: None,
    planned: Callable[[Path, Plan], None] = lambda path, plan: None,
    hear: Callable[[Path, float], None] = lambda path, seconds: None,
    span: float = SPAN,
) -> None:
    """Run over files; each is handled once, as soon as it is whole or has failed, in any order.

    Parameters
    ----------
    handle
        Called with the path and its scores, or with what is wrong with the file.
    begin
        Called before a file is looked at for the first time.
    planned
        Called when its duration is known.
    hear
        Called with the seconds of it that were scored, piece by piece.
    span
        Seconds, about, that are given to the executor at once.
    """
    waiting: dict[Path, _Parts] = {}

    def draw() -> Iterator[Span]:
        for path in paths:
            begin(path)
            try:
                cut = plan(path, scorer, span=span)
            except Exception as error:
                handle(path, error)
                continue
            planned(path, cut)
            waiting[path] = _Parts(cut)
            for piece in cut.spans:
                if path not in waiting:  # a piece before has failed
                    break
                yield piece

    with _closed(executor.map_spans(draw())) as results:
        for piece, result in results:
            parts = waiting.get(piece.path)
            if parts is None:
                continue
            if isinstance(result, Exception):
                del waiting[piece.path]
                handle(piece.path, result)
                continue
            parts.found[piece.first] = result
            hear(piece.path, parts.plan.duration * (piece.last - piece.first) / parts.plan.spans[-1].last)
            if len(parts.found) == len(parts.plan.spans):
                del waiting[piece.path]
                values = np.concatenate([parts.found[span.first] for span in parts.plan.spans])
                plan_ = parts.plan
                handle(piece.path, make_scores(str(piece.path), values, scorer, plan_.frames, plan_.duration))


def make_scores(filename: str, values: Probabilities, scorer: Scorer, frames: int, duration: float) -> RecordingScores:
    """Scores of a recording from all that `Scorer.score` returned for it: (frames', columns)."""
    return RecordingScores(
        filename=filename,
        classes=scorer.classes,
        p=values[:, : len(scorer.classes)],
        feature_hop=scorer.hop,
        reduction=scorer.reduction,
        frames=frames,
        duration=duration,
        pooled=scorer.pool(values),
        fingerprint=scorer.fingerprint,
    )


@contextmanager
def _closed(results: Results) -> Iterator[Results]:
    """Close a generator at the end, not when Python comes round to it: threads would go on meanwhile."""
    try:
        yield results
    finally:
        if close := getattr(results, "close", None):
            close()
