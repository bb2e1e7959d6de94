"""Recordings cut into spans, which threads of this process or other machines score.

A span is an interval of a recording, in output frames. Its probabilities depend neither on who computes them nor on how
the recording was cut. An executor draws spans and yields their probabilities in any order; `score_files` joins them.
"""

import math
import pickle
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from earmark import audio
from earmark.errors import ArgumentError, DataError
from earmark.inference.recordings import Probabilities, feature_frames, output_frames, score_recording
from earmark.inference.scorer import Scorer
from earmark.inference.scores import RecordingScores
from earmark.isolation import IsolatedProcess
from earmark.parallel import call_limited, parallel_map, worker_count

Results = Generator[tuple["Span", Probabilities | Exception], None, None]

SPAN = 600.0
"""Default length in seconds: short enough to keep all cores busy with one recording."""

LONGEST = 600.0
"""Seconds that a recording may take in addition to the duration of its sound: even slow machines are faster than real
time. After that it fails."""


class Span(NamedTuple):
    """Output frames `first` up to, not including, `last` of a recording."""

    path: Path
    first: int
    last: int
    damaged: str = "refuse"  # or "keep", as for `earmark.audio.read`


class Plan(NamedTuple):
    """How a recording is cut."""

    spans: tuple[Span, ...]
    frames: int  # feature frames of the recording
    duration: float  # seconds
    gaps: tuple[audio.Gap, ...]  # missing sound, which is scored as silence


class Executor(Protocol):
    """Computes the probabilities of spans."""

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """Each span with its probabilities, as `score_span` computes them, or with an exception; in any order.

        `spans` may be endless: draw only as many as can be worked on, in the thread that iterates. Closing the
        generator stops the work.
        """


def plan(path: Path, scorer: Scorer, *, span: float = SPAN, damaged: str = "refuse") -> Plan:
    """Cut a recording into spans of about `span` seconds each, without decoding it."""
    if not span > 0:
        raise ArgumentError(f"span: expected a positive number of seconds, got {span}")
    about = audio.info(path, damaged=damaged)
    samples = about.samples_at(scorer.rate)
    frames = output_frames(scorer, samples)
    # Spans start where the scorer's blocks do, so that blocks are the same, and round the same, in any span.
    block = max(1, round(scorer.block / (scorer.hop * scorer.reduction)))
    size = frames if math.isinf(span) else block * max(1, round(span / (block * scorer.hop * scorer.reduction)))
    if about.format.endswith("OPUS") or scorer.is_stored:
        size = frames  # always read from the start of the file, so every span would read all before it
    spans = tuple(Span(path, first, last, damaged) for first, last in pairwise([*range(0, frames, size), frames]))
    return Plan(spans, feature_frames(scorer, samples), about.duration, about.gaps)


def score_span(scorer: Scorer, span: Span, *, is_stopped: Callable[[], bool] = lambda: False) -> Probabilities:
    """Probabilities of a span: (last - first, columns).

    `is_stopped` is polled between blocks; once it is true, the work ends with an error that is not awaited.
    """
    parts = []
    for p in score_recording(scorer, span.path, first=span.first, last=span.last, damaged=span.damaged):
        if is_stopped():
            raise DataError(f"{span.path}: stopped")
        parts.append(p)
    values, frames = np.concatenate(parts), span.last - span.first
    if len(values) != frames:
        raise DataError(f"{span.path}: expected {frames} frames, got {len(values)}; has the file changed meanwhile?")
    return values


class LocalExecutor:
    """Scores spans in threads of this process, by default one per core, which share the model.

    A span may take `LONGEST` seconds and, for each worker, as long as it lasts; then it fails, and the others continue.
    """

    def __init__(self, scorer: Scorer, workers: int | None = None) -> None:
        self.scorer = scorer
        self.workers = worker_count(workers)

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """See `Executor`."""
        stop = threading.Event()
        score = partial(score_span, self.scorer, is_stopped=stop.is_set)
        workers = self.workers
        return parallel_map(score, spans, workers=workers, limit=workers + 1, stop=stop, seconds=self.longest)

    def longest(self, span: Span) -> float:
        """Seconds that a span may take."""
        return LONGEST + self.workers * _duration(span, self.scorer)


class IsolatedExecutor:
    """Scores recordings in a separate process, one at a time, with limited memory and time, since they may crash it.

    `source` is sent to the process: the scorer, or a detector that loads it there. There a recording is cut into spans
    of `span` seconds as usual: resampling that starts elsewhere rounds differently.
    """

    MEMORY = 4 << 30  # bytes
    SECONDS = LONGEST  # in addition to the duration of the sound

    def __init__(self, scorer: Scorer, source: object, span: float = SPAN) -> None:
        self.scorer, self.source, self.span = scorer, source, span
        self._process = IsolatedProcess(memory=self.MEMORY)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def plan(self, path: Path, damaged: str) -> Plan:
        """The recording in one piece; `plan` in a separate process, since reading a header can crash it too."""
        make = partial(_plan_from, self.source, damaged)
        return self._process.call(make, path, seconds=self.SECONDS)

    def map_spans(self, spans: Iterable[Span]) -> Results:
        """See `Executor`."""
        for span in spans:
            seconds = self.SECONDS + _duration(span, self.scorer)
            score = partial(_score_from, self.source, self.span)
            result: Probabilities | Exception
            try:
                result = self._process.call(score, span, seconds=seconds)
            except Exception as error:
                result = error
            yield span, result


@contextmanager
def isolated(scorer: Scorer, source: object, span: float, *, otherwise: Executor) -> Iterator[Executor]:
    """An executor for recordings that may have crashed a process: `otherwise` if the source cannot be sent to another.

    Objects of classes in the main module cannot: the other process has a different main module.
    """
    try:
        can_be_sent = b"__main__" not in pickle.dumps(source)
    except Exception:  # pickling fails with errors of many types
        can_be_sent = False
    if not can_be_sent:
        yield otherwise
        return
    with closing(IsolatedExecutor(scorer, source, span)) as executor:
        yield executor


def _duration(span: Span, scorer: Scorer) -> float:
    """Duration of its sound, in seconds."""
    return (span.last - span.first) * scorer.hop * scorer.reduction


def _score_from(source: Any, seconds: float, whole: Span) -> Probabilities:
    """Score a whole recording, span by span, with a scorer or with that of a detector."""
    scorer = getattr(source, "scorer", source)
    spans = plan(whole.path, scorer, span=seconds, damaged=whole.damaged).spans
    return np.concatenate([score_span(scorer, span) for span in spans])


def _plan_from(source: Any, damaged: str, path: Path) -> Plan:
    return plan(path, getattr(source, "scorer", source), span=math.inf, damaged=damaged)


def score_files(
    paths: Iterable[Path],
    scorer: Scorer,
    executor: Executor,
    *,
    on_result: Callable[[Path, RecordingScores | Exception], None],
    on_start: Callable[[Path], None] = lambda path: None,
    on_duration: Callable[[Path, float], None] = lambda path, seconds: None,
    on_gaps: Callable[[Path, tuple[audio.Gap, ...]], None] = lambda path, gaps: None,
    on_scored: Callable[[float], None] = lambda seconds: None,
    span: float = SPAN,
    damaged: str = "refuse",
) -> None:
    """Score files. `span` is the approximate length in seconds of what the executor gets at once.

    Files whose sound is not intact are errors, or with `damaged="keep"` are scored with silence in their gaps.
    `on_result` is called once per file, in any order, with its scores or the reason why there are none; `on_start`
    before it is opened; `on_duration` with its duration; `on_gaps` with its gaps, also if there are none; `on_scored`
    with the seconds of audio in each span that was scored.
    """
    waiting: dict[Path, tuple[Plan, dict[Span, Probabilities]]] = {}  # files that are neither complete nor failed

    def draw() -> Iterator[Span]:
        for path in paths:
            on_start(path)
            try:
                cut = _plan_for(executor, path, scorer, span, damaged)
            except Exception as error:
                on_result(path, error)
                continue
            on_duration(path, cut.duration)
            on_gaps(path, cut.gaps)
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
                on_result(part.path, _joined(cut, done, scorer))


def _plan_for(executor: Executor, path: Path, scorer: Scorer, span: float, damaged: str) -> Plan:
    """How to cut a recording for an executor; reading its header takes limited time."""
    if isinstance(executor, IsolatedExecutor):
        return executor.plan(path, damaged)
    make = partial(plan, scorer=scorer, span=span, damaged=damaged)
    return call_limited(make, path, seconds=LONGEST)


def _joined(cut: Plan, done: Mapping[Span, Probabilities], scorer: Scorer) -> RecordingScores | DataError:
    """Scores of a recording from those of its spans."""
    values = np.concatenate([done[part] for part in cut.spans])
    try:
        return make_scores(str(cut.spans[0].path), values, scorer, cut.frames, cut.duration)
    except DataError as error:
        return error


def make_scores(filename: str, values: Probabilities, scorer: Scorer, frames: int, duration: float) -> RecordingScores:
    """Scores of a recording from all that `Scorer.score` returned for it: (frames', columns).

    Values that are not finite, as from weights that overflow, raise a DataError that names the recording and the model.
    """
    is_finite = bool(np.isfinite(values).all())
    pooled = scorer.pool(values) if is_finite else None
    if not is_finite or (pooled is not None and not np.isfinite(pooled).all()):
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
