"""Scores recordings of any length in blocks, in bounded memory.

If an output frame depends on a limited context (`Scorer.context`), blocks overlap by that much, and the result is that
of the whole recording scored at once. If it depends on all frames, the **window rule** applies, since the model was
trained on short patches:

- A recording no longer than `Scorer.window` is scored as a whole, like a clip.
- A longer one is scored in windows of that length, independently of each other. With scaling "clip", each is relative
  to its loudest frame, like the patches in training.
- Windows start on the grid of output frames and overlap, by half unless the scorer says otherwise. The middle of each
  is kept; the first also keeps its beginning, the last its end. The last window is moved back to be full, so it may
  overlap more.

So the result depends only on the recording, not on how it was read or which part was requested.

Output frame k stands for the sound from k * reduction * hop on. A recording too short for one is padded with silence.
Sound at the end that does not fill an output frame is ignored.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from earmark import audio
from earmark.audio import AnyPath, Samples
from earmark.errors import ArgumentError
from earmark.inference.scorer import Scorer
from earmark.timing import time_to_sample

Probabilities = npt.NDArray[np.float32]
"""(frames', columns) as `Scorer.score` returns them."""


def feature_frames(scorer: Scorer, samples: int) -> int:
    """Feature frames of a recording with that many samples, including padding with silence."""
    return scorer.frames(max(samples, scorer.least_samples))


def output_frames(scorer: Scorer, samples: int) -> int:
    """Output frames of a recording with that many samples: at least one."""
    return feature_frames(scorer, samples) // scorer.reduction


def latency(scorer: Scorer) -> float:
    """Longest delay, in seconds of audio, between a sound and its output frame from `score_blocks`."""
    return _cutter(scorer, is_eager=True).delay / scorer.rate


def score_recording(
    scorer: Scorer,
    path: AnyPath,
    *,
    first: int = 0,
    last: int | None = None,
    block: float | None = None,
    damaged: str = "refuse",
) -> Iterator[Probabilities]:
    """Probabilities of output frames `first` up to, not including, `last` of a file, by default all, in blocks.

    They are the same as those of the whole file. `block` is the number of seconds scored at once, by default
    `Scorer.block`; it bounds memory and changes no result. `damaged` is that of `earmark.audio.read`.
    """
    about = audio.info(path, damaged=damaged)
    total = about.samples_at(scorer.rate)
    frames = output_frames(scorer, total)
    last = frames if last is None else min(last, frames)
    if not 0 <= first < last:
        raise ArgumentError(f"{path}: expected output frames within 0 to {frames}, got {first} to {last}")
    features = scorer.stored_features(Path(path), total)
    if features is not None:
        rows = _Rows(scorer)
        cutter = _cutter(rows, first=first, last=last, total=len(features))
        return _score_all(rows, cutter.cuts([features[cutter.origin :]]))
    cutter = _cutter(scorer, first=first, last=last, total=total, block=block)
    needed = cutter.needed(last)
    offset = None if needed >= total else needed / scorer.rate
    seconds = scorer.block if block is None else block
    onset = cutter.origin / scorer.rate
    blocks = audio.stream(path, rate=scorer.rate, block=seconds, onset=onset, offset=offset, damaged=damaged)
    return _score_all(scorer, cutter.cuts(blocks))


def score_samples(scorer: Scorer, samples: Samples, *, block: float | None = None) -> Iterator[Probabilities]:
    """Probabilities of a recording in memory, (samples,) at the scorer's rate, in blocks as `score_recording`."""
    return _score_all(scorer, _cutter(scorer, block=block).cuts([samples]))


def score_together(scorer: Scorer, recordings: Iterable[Samples]) -> Iterator[Probabilities]:
    """Probabilities of each of several recordings in memory, (samples,) at the scorer's rate.

    A GPU computes excerpts of equal length as one batch, which is much faster for many short recordings.
    """
    cuts = [list(_cutter(scorer).cuts([samples])) for samples in recordings]
    values = _score_all(scorer, chain.from_iterable(cuts))
    return (np.concatenate(list(islice(values, len(own)))) for own in cuts)


def score_blocks(scorer: Scorer, blocks: Iterable[Samples]) -> Iterator[Probabilities]:
    """Probabilities of a recording that arrives in blocks (samples,) of any sizes, at the scorer's rate.

    Output frames are yielded as soon as no later sound can change them; see `latency`.
    """
    scored = None  # begin and length of the last excerpt
    p = np.empty((0, scorer.columns), np.float32)
    for cut in _cutter(scorer, is_eager=True).cuts(blocks):
        if (cut.begin, len(cut.samples)) != scored:  # otherwise the same window yields more of its frames
            p = scorer.score(cut.samples)
            scored = cut.begin, len(cut.samples)
        yield p[cut.first : cut.last]


def _score_all(scorer: Scorer, cuts: Iterable[_Cut]) -> Iterator[Probabilities]:
    kept: deque[slice] = deque()

    def excerpts() -> Iterator[Samples]:
        for cut in cuts:
            kept.append(slice(cut.first, cut.last))
            yield cut.samples

    for p in scorer.score_all(excerpts()):
        yield p[kept.popleft()]


class _Rows(Scorer):
    """A scorer of features that are read from files, to which `_Cutter` applies as if frames were samples."""

    rate = hop_samples = n_fft = 1
    padding = 0

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self.classes = scorer.classes
        self.fingerprint = scorer.fingerprint
        self.reduction = scorer.reduction
        self.context = scorer.context
        self.overlap = scorer.overlap
        self.window = scorer.window / scorer.hop
        self.block = scorer.block / scorer.hop

    @property
    def columns(self) -> int:
        return self.scorer.columns

    def score(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        return self.scorer.score_features(samples)


class _Cut(NamedTuple):
    """An excerpt to score, from sample `begin` of the recording on, and which of its output frames to keep."""

    samples: Samples
    begin: int
    first: int
    last: int


class _Cutter(ABC):
    """Cuts a recording that arrives in blocks into excerpts to score."""

    delay: int  # the longest, in samples, between a sound and the excerpt that keeps its output frame

    def __init__(self, scorer: Scorer, first: int, last: int | None, is_eager: bool) -> None:
        self.scorer = scorer
        self.step = scorer.hop_samples * scorer.reduction  # samples per output frame
        self.done, self.last = first, sys.maxsize if last is None else last
        self.is_eager = is_eager
        self.origin = 0  # first sample of the recording that is needed
        self._kept: Samples = np.empty(0, np.float32)  # samples from `origin` on

    @property
    def received(self) -> int:
        """Samples of the recording received so far."""
        return self.origin + len(self._kept)

    def cuts(self, blocks: Iterable[Samples]) -> Iterator[_Cut]:
        """All excerpts of a recording, each as soon as its samples have arrived."""
        for block in blocks:
            self._kept = np.concatenate([self._kept, block]) if len(self._kept) else block
            yield from self._available()
        if self.received:
            yield from self._remaining(min(output_frames(self.scorer, self.received), self.last))

    @abstractmethod
    def needed(self, stop: int) -> int:
        """Number of samples from which on no later sound can change the output frames before `stop`."""

    @abstractmethod
    def _available(self) -> Iterator[_Cut]:
        """Excerpts that can be scored now."""

    @abstractmethod
    def _remaining(self, end: int) -> Iterator[_Cut]:
        """Excerpts for the output frames up to `end`, at the end of the recording."""

    def _cut(self, start: int, end: int, stop: int) -> _Cut:
        """Score from output frame `start` to sample `end`; keep the frames not yet kept, up to `stop`."""
        begin = start * self.step
        samples = self._kept[begin - self.origin : end - self.origin]
        if len(samples) < self.scorer.least_samples:
            missing = self.scorer.least_samples - len(samples)
            samples = np.pad(samples, [(0, missing), *[(0, 0)] * (samples.ndim - 1)])
        first, self.done = self.done, stop
        return _Cut(samples, begin, first - start, stop - start)

    def _drop(self, start: int) -> None:
        """Drop samples before output frame `start`."""
        self._kept = self._kept[max(0, start * self.step - self.origin) :]
        self.origin = max(self.origin, start * self.step)


class _Blocks(_Cutter):
    """Blocks that overlap by the context of an output frame.

    Example: with blocks of 4 output frames, a context of 6 feature frames and a reduction of 4, one more feature frame
    that sees the zeros before an excerpt makes `reach` = ceil(7 / 4) = 2. Output frames 4 to 7 are scored from an
    excerpt that starts at output frame 2 and ends 6 feature frames after frame 7; its frames 2 to 5 are kept.
    """

    def __init__(
        self, scorer: Scorer, first: int, last: int | None, is_eager: bool, context: int, seconds: float
    ) -> None:
        super().__init__(scorer, first, last, is_eager)
        self.context = context
        self.size = max(1, round(seconds * scorer.rate / self.step))
        padded = -(-scorer.padding // scorer.hop_samples)  # feature frames that see zeros before an excerpt
        self.reach = -(-(context + padded) // scorer.reduction)
        self.origin = max(0, first - self.reach) * self.step
        self.delay = self.needed(1)

    def needed(self, stop: int) -> int:
        s = self.scorer
        return (stop * s.reduction + self.context - 1) * s.hop_samples - s.padding + s.n_fft

    def _available(self) -> Iterator[_Cut]:
        s = self.scorer
        frames = (self.received + s.padding - s.n_fft) // s.hop_samples + 1
        certain = min((frames - self.context) // s.reduction, self.last)
        while self.done < certain and (self.is_eager or certain - self.done >= self.size):
            yield self._next(certain)

    def _remaining(self, end: int) -> Iterator[_Cut]:
        while self.done < end:
            yield self._next(end)

    def _next(self, end: int) -> _Cut:
        start = max(0, self.done - self.reach)
        stop = min(self.done + self.size, end)
        cut = self._cut(start, min(self.received, self.needed(stop)), stop)
        self._drop(stop - self.reach)
        return cut


class _Windows(_Cutter):
    """The window rule.

    Example: windows of 8 output frames have `hop` 4 and `edge` 2. Window i starts at output frame 4 i; the first keeps
    frames 0 to 5, the next ones 4 i + 2 to 4 i + 5. In a recording of 13 frames the last window starts at frame 5: the
    windows at 0, 4 and 5 keep frames 0 to 5, frame 6, and frames 7 to 12.
    """

    def __init__(self, scorer: Scorer, first: int, last: int | None, is_eager: bool, total: int | None) -> None:
        super().__init__(scorer, first, last, is_eager)
        self.size = max(time_to_sample(scorer.window, scorer.rate), scorer.least_samples)
        frames = scorer.frames(self.size) // scorer.reduction
        self.hop = max(1, int(frames * (1 - scorer.overlap)))
        self.edge = (frames - self.hop) // 2
        start = self._start() if total is None else min(self._start(), self._last_start(total))
        self.origin = start * self.step
        self.delay = self.size + self.step

    def needed(self, stop: int) -> int:
        return self.size + max(1, stop - self.edge) * self.step

    def _available(self) -> Iterator[_Cut]:
        certain = (self.received - self.size) // self.step  # the last window cannot start earlier
        while (start := self._start()) < certain:
            stop = min(min(start + self.hop, certain) + self.edge, self.last)
            is_whole = start + self.hop <= certain or stop == self.last
            if stop <= self.done or not (self.is_eager or is_whole):
                break
            yield self._cut(start, start * self.step + self.size, stop)
        self._drop(max(0, min(self._start(), certain)))

    def _remaining(self, end: int) -> Iterator[_Cut]:
        final = self._last_start(self.received)
        while self.done < end:
            start = self._start()
            stop = min(min(start + self.hop, final) + self.edge, end)
            if start < final and self.done < stop:
                yield self._cut(start, start * self.step + self.size, stop)
            else:
                yield self._cut(final, self.received, end)

    def _start(self) -> int:
        """First output frame of the window that keeps the next frame, unless that is the last window."""
        return max(0, (self.done - self.edge) // self.hop) * self.hop

    def _last_start(self, total: int) -> int:
        return max(0, (total - self.size) // self.step)


def _cutter(
    scorer: Scorer,
    *,
    first: int = 0,
    last: int | None = None,
    total: int | None = None,
    block: float | None = None,
    is_eager: bool = False,
) -> _Cutter:
    seconds = scorer.block if block is None else block
    if not 0 < seconds < math.inf:
        raise ArgumentError(f"block: expected a positive number of seconds, got {block}")
    if scorer.context is None:
        return _Windows(scorer, first, last, is_eager, total)
    return _Blocks(scorer, first, last, is_eager, scorer.context, seconds)
