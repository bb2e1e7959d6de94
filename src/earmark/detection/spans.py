"""Recordings cut into spans, which threads of this process or other machines score.

A span is an interval of a recording, in output frames. Its probabilities depend neither on who computes them nor on how
the recording was cut. An executor draws spans and yields their probabilities in any order; `score_files` joins them.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from earmark import audio
from earmark.errors import ArgumentError, DataError
from earmark.inference.recordings import Probabilities, feature_frames, output_frames, score_recording
from earmark.inference.scorer import Scorer
from earmark.inference.scores import RecordingScores
from earmark.parallel import parallel_map, worker_count

Results = Generator[tuple["Span", Probabilities | Exception], None, None]

SPAN = 600.0
"""Default length in seconds: short enough to keep all cores busy with one recording."""


class Span(NamedTuple):
    """Output frames `first` up to, not including, `last` of a recording."""

    path: Path
    first: int
    last: int


class Plan(NamedTuple):
    """How a recording is cut."""

    spans: tuple[Span, ...]
    frames: int  # feature frames of the recording
    duration: float  # seconds


class Executor(Protocol):
    """Computes the probabilities of spans."""

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """Each span with its probabilities, as `score_span` computes them, or with an exception; in any order.

        `spans` may be endless: draw only as many as can be worked on, in the thread that iterates. Closing the
        generator stops the work.
        """


def plan(path: Path, scorer: Scorer, *, span: float = SPAN) -> Plan:
    """Cut a recording into spans of about `span` seconds each; reads its header only."""
    if not span > 0:
        raise ArgumentError(f"span: expected a positive number of seconds, got {span}")
    about = audio.info(path)
    samples = about.samples_at(scorer.rate)
    frames = output_frames(scorer, samples)
    # Spans start where the scorer's blocks do, so that blocks are the same, and round the same, in any span.
    block = max(1, round(scorer.block / (scorer.hop * scorer.reduction)))
    size = block * max(1, round(span / (block * scorer.hop * scorer.reduction)))
    if about.format.endswith("OPUS"):
        size = frames  # always decoded from the start of the file, so every span would decode all before it
    spans = tuple(Span(path, first, last) for first, last in pairwise([*range(0, frames, size), frames]))
    return Plan(spans, feature_frames(scorer, samples), about.duration)


def score_span(scorer: Scorer, span: Span, *, is_stopped: Callable[[], bool] = lambda: False) -> Probabilities:
    """Probabilities of a span: (last - first, columns).

    `is_stopped` is polled between blocks; once it is true, the work ends with an error that nobody waits for.
    """
    parts = []
    for p in score_recording(scorer, span.path, first=span.first, last=span.last):
        if is_stopped():
            raise DataError(f"{span.path}: stopped")
        parts.append(p)
    values, frames = np.concatenate(parts), span.last - span.first
    if len(values) != frames:
        raise DataError(f"{span.path}: expected {frames} frames, got {len(values)}; has the file changed meanwhile?")
    return values


class LocalExecutor:
    """Scores spans in threads of this process, by default one per core, which share the model."""

    def __init__(self, scorer: Scorer, workers: int | None = None) -> None:
        self.scorer = scorer
        self.workers = worker_count(workers)

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """See `Executor`."""
        stop = threading.Event()
        score = partial(score_span, self.scorer, is_stopped=stop.is_set)
        return parallel_map(score, spans, workers=self.workers, limit=self.workers + 1, stop=stop)


def score_files(
    paths: Iterable[Path],
    scorer: Scorer,
    executor: Executor,
    *,
    on_result: Callable[[Path, RecordingScores | Exception], None],
    on_start: Callable[[Path], None] = lambda path: None,
    on_duration: Callable[[Path, float], None] = lambda path, seconds: None,
    on_scored: Callable[[float], None] = lambda seconds: None,
    span: float = SPAN,
) -> None:
    """Score files. `span` is the approximate length in seconds of what the executor gets at once.

    `on_result` is called once per file, in any order, with its scores or what is wrong with it; `on_start` before it is
    opened; `on_duration` with its duration; `on_scored` with the seconds of audio in each span that was scored.
    """
    waiting: dict[Path, tuple[Plan, dict[Span, Probabilities]]] = {}  # files that are neither complete nor failed

    def draw() -> Iterator[Span]:
        for path in paths:
            on_start(path)
            try:
                cut = plan(path, scorer, span=span)
            except Exception as error:
                on_result(path, error)
                continue
            on_duration(path, cut.duration)
            waiting[path] = cut, {}
            for part in cut.spans:
                if path not in waiting:  # an earlier span has failed
                    break
                yield part

    with closing(executor.map_spans(draw())) as results:
        for part, result in results:
            if part.path not in waiting:
                continue
            cut, done = waiting[part.path]
            if isinstance(result, Exception):
                del waiting[part.path]
                on_result(part.path, result)
                continue
            done[part] = result
            on_scored(cut.duration * (part.last - part.first) / cut.spans[-1].last)
            if len(done) == len(cut.spans):
                del waiting[part.path]
                values = np.concatenate([done[each] for each in cut.spans])
                try:
                    scores = make_scores(str(part.path), values, scorer, cut.frames, cut.duration)
                except DataError as error:
                    on_result(part.path, error)
                else:
                    on_result(part.path, scores)


def make_scores(filename: str, values: Probabilities, scorer: Scorer, frames: int, duration: float) -> RecordingScores:
    """Scores of a recording from all that `Scorer.score` returned for it: (frames', columns).

    Values that are not finite, as from weights that overflow, raise a DataError that names the recording and the model.
    """
    pooled = None if not np.isfinite(values).all() else scorer.pool(values)
    if not np.isfinite(values if pooled is None else pooled).all():
        raise DataError(f"{filename}: {scorer.source} gives NaN or infinity; expected probabilities")
    return RecordingScores(
        filename=filename,
        classes=scorer.classes,
        p=values[:, : len(scorer.classes)],
        feature_hop=scorer.hop,
        reduction=scorer.reduction,
        frames=frames,
        duration=duration,
        pooled=pooled,
        fingerprint=scorer.fingerprint,
    )
