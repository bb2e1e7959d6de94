"""Sound of files that several clips share, as mixtures do: decoded and resampled once."""

import threading
from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np
import numpy.typing as npt

from earmark.datasets import Clip, Source

Samples = npt.NDArray[np.float32]


class SharedSources:
    """Reads the sound of clips at one rate, and keeps the sound of sources that later clips need again.

    At most `seconds` of sound are kept. Threads may share it.
    """

    def __init__(self, clips: Iterable[Clip], rate: int, seconds: float) -> None:
        self._rate, self._room = rate, round(seconds * rate)  # samples
        self._needed = Counter(_part(source) for clip in clips for source in clip.sources)
        self._kept: dict[Hashable, tuple[Hashable, Samples]] = {}
        self._lock = threading.Lock()

    def read(self, clip: Clip, stamps: Iterable[Hashable]) -> Samples:
        """The sound of a clip, whose files have these stamps; sound kept under another stamp is read again."""
        stamp_of = dict(zip(clip.sources, stamps, strict=False))
        return clip.read(self._rate, lambda source: self._sound(source, stamp_of[source]))

    def _sound(self, source: Source, stamp: Hashable) -> Samples:
        part = _part(source)
        with self._lock:
            self._needed[part] -= 1
            kept_stamp, sound = self._kept.get(part, (None, None))
            if sound is not None and (self._needed[part] < 1 or kept_stamp != stamp):
                del self._kept[part]
                self._room += len(sound)
        if sound is not None and kept_stamp == stamp:
            return sound.copy()  # the receiver may change it
        sound = source.read(self._rate)
        with self._lock:
            if self._needed[part] > 0 and part not in self._kept and len(sound) <= self._room:
                self._kept[part] = stamp, sound.copy()
                self._room -= len(sound)
        return sound


def _part(source: Source) -> Hashable:
    return source.path, source.onset, source.offset
