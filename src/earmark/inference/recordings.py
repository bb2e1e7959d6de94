"""A scorer run over recordings of any length, in blocks and in bounded memory.

Where an output frame sees only so far (`Scorer.context`), blocks overlap by as much, and the result is that of the
whole recording scored at once. Where it sees everything, "everything" would be a whole night, and nothing like what the
model has learned from; there the **window rule** holds:

- A recording not longer than `Scorer.window` is scored whole, as a clip is.
- A longer one is scored in windows of that length, each on its own, so that scaling "clip" is relative to the loudest
  frame of the window, as it was to that of the patches in training.
- Windows begin on the grid of output frames and overlap by half. Of each the middle half is kept; the first keeps its
  beginning too, the last its end. The last is moved back so that it is full: it may overlap more.

So the result depends on the recording alone, not on the blocks in which it was read nor on which part was asked for.

Output frame k stands for the sound from k * reduction * hop on. A recording too short for one is padded with silence to
one. Sound at the end that fills no output frame belongs to none.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.errors import ArgumentError
from earmark.inference.scorer import Scorer
from earmark.timing import time_to_sample

__all__ = ["feature_frames", "latency", "output_frames", "score_blocks", "score_recording", "score_samples"]

Samples = npt.NDArray[np.float32]
Probabilities = npt.NDArray[np.float32]


def feature_frames(scorer: Scorer, samples: int) -> int:
    """Feature frames of a recording with that many samples, silence included where it is padded."""
    return scorer.frames(max(samples, scorer.least_samples))


def output_frames(scorer: Scorer, samples: int) -> int:
    """Output frames of a recording with that many samples: at least one."""
    return feature_frames(scorer, samples) // scorer.reduction


def latency(scorer: Scorer) -> float:
    """Seconds from a sound until `score_blocks` has given out the output frame that it falls into, at most.

    Counted in sound that has arrived; the time it takes to compute comes on top. The end of the recording gives out all
    that is left.
    """
    return _cutter(scorer, is_eager=True).delay / scorer.rate


def score_recording(
    scorer: Scorer,
    path: str | os.PathLike[str],
    *,
    first: int = 0,
    last: int | None = None,
    block: float | None = None,
) -> Iterator[Probabilities]:
    """Probabilities of a file, or of a part of it, in blocks (frames', classes) that follow on each other.

    Parameters
    ----------
    first, last
        Output frames wanted: from `first` up to, not including, `last`; by default all. They are those of the whole
        file, whatever part of it is read.
    block
        Seconds scored at once; by default what suits the scorer. It bounds memory and changes no result.
    """
    about = audio.info(path)
    total = about.samples_at(scorer.rate)
    frames = output_frames(scorer, total)
    last = frames if last is None else min(last, frames)
    if not 0 <= first < last:
        raise ArgumentError(f"{path}: output frames {first} to {last} were asked for, there are {frames}")
    seconds = _checked_block(scorer, block)
    cutter = _cutter(scorer, first=first, last=last, total=total, seconds=seconds)
    begin, end = cutter.origin, min(total, cutter.needed(last))
    offset = None if end == total else end / scorer.rate
    blocks = audio.stream(path, rate=scorer.rate, block=seconds, onset=begin / scorer.rate, offset=offset)
    return _scored_all(scorer, _cuts(cutter, blocks))


def score_samples(scorer: Scorer, samples: Samples, *, block: float | None = None) -> Iterator[Probabilities]:
    """Probabilities of a recording in memory, (samples,) at the scorer's rate, in blocks as `score_recording`."""
    cutter = _cutter(scorer, seconds=_checked_block(scorer, block))
    return _scored_all(scorer, _cuts(cutter, [samples]))


def score_blocks(scorer: Scorer, blocks: Iterable[Samples]) -> Iterator[Probabilities]:
    """Probabilities of a recording that arrives in blocks (samples,) of any sizes, at the scorer's rate.

    Output frames are given out as soon as no later sound can change them; see `latency`. Together they are those of
    the whole.
    """
    cut, p = None, np.empty((0, scorer.columns), np.float32)
    for new in _cuts(_cutter(scorer, is_eager=True), blocks):
        if cut is None or new.begin != cut.begin or len(new.samples) != len(cut.samples):
            p = scorer.score(new.samples)  # not once more the window that gave out its first frames already
        cut = new
        yield p[cut.first : cut.last]


class _Cut(NamedTuple):
    """Something to score, from sample `begin` of the recording on, and which of its output frames to keep."""

    samples: Samples
    begin: int
    first: int
    last: int


class _Cutter(ABC):
    """Cuts sound that arrives in blocks into excerpts to score.

    Attributes
    ----------
    origin
        First sample that it wants to be fed.
    delay
        Samples from a sound until it is in an excerpt whose frames are kept, at most.
    """

    delay: int

    def __init__(self, scorer: Scorer, first: int, last: int | None, is_eager: bool) -> None:
        self.scorer = scorer
        self.step = scorer.hop_samples * scorer.reduction
        self.done, self.last = first, last
        self.is_eager = is_eager
        self.origin = 0
        self._kept: Samples = np.empty(0, np.float32)

    @property
    def received(self) -> int:
        """Samples of the recording that were there so far."""
        return self.origin + len(self._kept)

    @abstractmethod
    def needed(self, stop: int) -> int:
        """Samples of the recording that make its output frames before `stop` certain."""

    @abstractmethod
    def feed(self, block: Samples) -> Iterator[_Cut]:
        """Hear more; excerpts that can be scored now."""

    @abstractmethod
    def finish(self) -> Iterator[_Cut]:
        """Excerpts for what is left, when no more comes."""

    def _append(self, block: Samples) -> None:
        self._kept = np.concatenate([self._kept, block]) if len(self._kept) else block

    def _cut(self, start: int, end: int, stop: int) -> _Cut:
        """Score from output frame `start` to sample `end`; keep the frames not yet given, up to `stop`."""
        begin = start * self.step
        samples = self._kept[begin - self.origin : end - self.origin]
        if len(samples) < self.scorer.least_samples:
            samples = np.pad(samples, (0, self.scorer.least_samples - len(samples)))
        first, self.done = self.done, stop
        return _Cut(samples, begin, first - start, stop - start)

    def _drop(self, start: int) -> None:
        """Forget what comes before output frame `start`."""
        self._kept = self._kept[max(0, start * self.step - self.origin) :]
        self.origin = max(self.origin, start * self.step)

    def _end(self) -> int:
        frames = output_frames(self.scorer, self.received)
        return frames if self.last is None else min(frames, self.last)


class _Blocks(_Cutter):
    """Blocks that overlap by as much as an output frame sees."""

    def __init__(
        self, scorer: Scorer, first: int, last: int | None, is_eager: bool, context: int, seconds: float
    ) -> None:
        super().__init__(scorer, first, last, is_eager)
        self.context = context
        self.size = max(1, round(seconds * scorer.rate / self.step))
        unheard = -(-scorer.padding // scorer.hop_samples)  # feature frames that see zeros before an excerpt
        self.reach = -(-(context + unheard) // scorer.reduction)
        self.origin = max(0, first - self.reach) * self.step
        self.delay = self.needed(1)

    def needed(self, stop: int) -> int:
        s = self.scorer
        return (stop * s.reduction + self.context - 1) * s.hop_samples - s.padding + s.n_fft

    def feed(self, block: Samples) -> Iterator[_Cut]:
        self._append(block)
        s = self.scorer
        frames = (self.received + s.padding - s.n_fft) // s.hop_samples + 1
        certain = (frames - self.context) // s.reduction
        if self.last is not None:
            certain = min(certain, self.last)
        while self.done < certain and (self.is_eager or certain - self.done >= self.size):
            yield self._next(certain)

    def finish(self) -> Iterator[_Cut]:
        end = self._end() if self.received else 0
        while self.done < end:
            yield self._next(end)

    def _next(self, end: int) -> _Cut:
        start, stop = max(0, self.done - self.reach), min(self.done + self.size, end)
        cut = self._cut(start, min(self.received, self.needed(stop)), stop)
        self._drop(stop - self.reach)
        return cut


class _Windows(_Cutter):
    """The window rule."""

    def __init__(self, scorer: Scorer, first: int, last: int | None, is_eager: bool, total: int | None) -> None:
        super().__init__(scorer, first, last, is_eager)
        self.size = max(time_to_sample(scorer.window, scorer.rate), scorer.least_samples)
        frames = scorer.frames(self.size) // scorer.reduction
        self.hop = max(1, frames // 2)
        self.edge = (frames - self.hop) // 2
        start = self._index() * self.hop
        self.origin = (start if total is None else min(start, self._last_start(total))) * self.step
        self.delay = self.size + self.step

    def needed(self, stop: int) -> int:
        return self.size + max(1, stop - self.edge) * self.step

    def feed(self, block: Samples) -> Iterator[_Cut]:
        self._append(block)
        certain = (self.received - self.size) // self.step  # the last window cannot begin before
        while (start := self._index() * self.hop) < certain:
            stop = min(start + self.hop, certain) + self.edge
            if self.last is not None:
                stop = min(stop, self.last)
            is_whole = start + self.hop <= certain or stop == self.last
            if stop <= self.done or not (self.is_eager or is_whole):
                break
            yield self._cut(start, start * self.step + self.size, stop)
        self._drop(max(0, min(self._index() * self.hop, certain)))

    def finish(self) -> Iterator[_Cut]:
        end = self._end() if self.received else 0
        final = self._last_start(self.received)
        while self.done < end:
            start = self._index() * self.hop
            stop = min(min(start + self.hop, final) + self.edge, end)
            if start < final and self.done < stop:
                yield self._cut(start, start * self.step + self.size, stop)
            else:
                yield self._cut(final, self.received, end)

    def _index(self) -> int:
        """Of the window that the next frame is kept of, if it is not the last."""
        return max(0, (self.done - self.edge) // self.hop)

    def _last_start(self, total: int) -> int:
        return max(0, (total - self.size) // self.step)


def _cutter(
    scorer: Scorer,
    *,
    first: int = 0,
    last: int | None = None,
    total: int | None = None,
    seconds: float = 20.0,
    is_eager: bool = False,
) -> _Cutter:
    if scorer.context is None:
        return _Windows(scorer, first, last, is_eager, total)
    return _Blocks(scorer, first, last, is_eager, scorer.context, seconds)


def _cuts(cutter: _Cutter, blocks: Iterable[Samples]) -> Iterator[_Cut]:
    for block in blocks:
        yield from cutter.feed(block)
    yield from cutter.finish()


def _scored_all(scorer: Scorer, cuts: Iterable[_Cut]) -> Iterator[Probabilities]:
    kept: list[slice] = []

    def excerpts() -> Iterator[Samples]:
        for cut in cuts:
            kept.append(slice(cut.first, cut.last))
            yield cut.samples

    for p in scorer.score_all(excerpts()):
        yield p[kept.pop(0)]


def _checked_block(scorer: Scorer, block: float | None) -> float:
    seconds = scorer.block if block is None else block
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"block must be a positive number of seconds, found {block}")
    return seconds
