"""Spectrogram tiles: a recording of any length at any zoom; only the visible part is read.

A tile has `COLUMNS` columns of `ROWS` frequencies, one byte each: 0 is -120 dB, 255 is 0 dB (full scale). At level n a
column lasts 2^n milliseconds, so that a day fits a screen at level 16 and 50 ms at level 0. Tile k starts at column
k * COLUMNS. Frequencies are spaced evenly or on the mel scale, from 0 Hz (the last row) to half the sample rate.

At fine levels, all of a tile's sound is read. At coarse levels, only a short piece in the middle of each column is, so
that a view of a day takes about as long as a view of a minute. Tiles are kept in the user's cache, up to a limit; the
least recently used are deleted first.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections import OrderedDict
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft
from scipy.sparse import csr_array

from earmark.audio import AudioInfo, Samples
from earmark.errors import ArgumentError, unknown_name
from earmark.files import cache_folder, make_folder, written_whole
from earmark.parallel import cores
from earmark.reviewing.sound import read_glimpses, read_part
from earmark.reviewing.source import Recording

COLUMNS, ROWS = 64, 256
THUMBNAIL_COLUMNS, THUMBNAIL_ROWS = 128, 64
LEVELS = 18
SCALES = ("mel", "linear")
_VERSION = 1
_FLOOR = 120.0  # dB
_LONGEST_WHOLE = 0.26  # seconds; of longer columns, only pieces are read
_SHORTEST_WINDOW, _LONGEST_WINDOW = 0.005, 0.046  # seconds
_MOST_SPECTRA = 2  # of a column of which all sound is read

Tile = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def column_seconds(level: int) -> float:
    """Duration of a column.

    >>> column_seconds(0), column_seconds(10)
    (0.001, 1.024)
    """
    return 0.001 * float(1 << level)


def compute(path: Path, about: AudioInfo, scale: str, level: int, index: int) -> Tile:
    """A tile: (ROWS, COLUMNS), the highest frequency first; columns past the end are 0."""
    check(about, scale, level, index)
    step = column_seconds(level)
    onset = index * COLUMNS * step
    columns = min(COLUMNS, math.ceil((about.duration - onset) / step))
    tile = np.zeros((ROWS, COLUMNS), np.uint8)
    tile[:, :columns] = _as_bytes(_spectrogram(path, about, scale, onset, step, columns))[::-1]
    return tile


def check(about: AudioInfo, scale: str, level: int, index: int) -> None:
    """Reject tiles that do not exist."""
    if scale not in SCALES:
        raise unknown_name("scale", scale, SCALES)
    if not 0 <= level < LEVELS:
        raise ArgumentError(f"level: expected 0 to {LEVELS - 1}, got {level}")
    if not 0 <= index < about.duration / (COLUMNS * column_seconds(level)):
        raise ArgumentError(f"tile {index} of level {level} is not within the {about.duration:.3f} s of the recording")


def thumbnail(recording: Recording, onset: float, offset: float) -> Tile:
    """A small picture of an excerpt, on the mel scale: (THUMBNAIL_ROWS, THUMBNAIL_COLUMNS), high to low."""
    step = max(offset - onset, 0.01) / THUMBNAIL_COLUMNS
    rows = _spectrogram(recording.path, recording.info(), "mel", onset, step, THUMBNAIL_COLUMNS)
    return _as_bytes(rows.reshape(THUMBNAIL_ROWS, -1, THUMBNAIL_COLUMNS).max(1))[::-1]


def _spectrogram(path: Path, about: AudioInfo, scale: str, onset: float, step: float, columns: int) -> Floats:
    """Power in columns of `step` seconds, (ROWS, columns), the lowest frequency first."""
    window = min(max(2 * step, _SHORTEST_WINDOW), _LONGEST_WINDOW)
    n_fft = max(32, 2 ** round(math.log2(window * about.rate)))
    spectra_of = _whole if step <= _LONGEST_WHOLE else _glimpses
    power = spectra_of(path, about, onset, step, columns, n_fft)
    return np.asarray(_bands(n_fft, about.rate, scale) @ power.T)


def _whole(path: Path, about: AudioInfo, onset: float, step: float, columns: int, n_fft: int) -> Floats:
    """Power spectra of columns, (columns, bins), from all of their sound; of several in a column, the maximum."""
    spectra = min(_MOST_SPECTRA, max(1, math.floor(step * about.rate / n_fft)))
    centres = (onset + (np.arange(columns * spectra) + 0.5) / spectra * step) * about.rate
    begins = np.round(centres).astype(np.int64) - n_fft // 2
    start, stop = int(begins[0]), int(begins[-1]) + n_fft
    sound = _padded(path, about, start, stop)
    frames = np.lib.stride_tricks.sliding_window_view(sound, n_fft)[begins - start]
    return np.asarray(_power(frames).reshape(columns, spectra, -1).max(1))


def _glimpses(path: Path, about: AudioInfo, onset: float, step: float, columns: int, n_fft: int) -> Floats:
    """Power spectra of columns, (columns, bins), from a short piece in the middle of each."""
    spectra = 3 if step < 1 else 2
    length = n_fft * (spectra + 1) // 2  # they overlap by half
    centres = np.round((onset + (np.arange(columns) + 0.5) * step) * about.rate).astype(np.int64)
    begins = np.clip(centres - length // 2, 0, max(0, about.samples - length))
    pieces = read_glimpses(path, begins.tolist(), length)
    frames = np.lib.stride_tricks.sliding_window_view(pieces, n_fft, axis=1)[:, :: n_fft // 2][:, :spectra]
    return np.asarray(_power(frames.reshape(-1, n_fft)).reshape(columns, spectra, -1).max(1))


def _padded(path: Path, about: AudioInfo, start: int, stop: int) -> Samples:
    """Samples of the file at its rate, with silence before its start and after its end."""
    first, last = max(0, start), min(stop, about.samples)
    sound = read_part(path, about.rate, first, last)
    return np.pad(sound, (first - start, stop - first - len(sound)))


def _power(frames: npt.NDArray[np.float32]) -> Floats:
    """Power spectra of frames (n, n_fft); a sine of full scale has 1."""
    window = np.hanning(frames.shape[-1] + 1)[:-1].astype(np.float32)
    spectrum = scipy.fft.rfft(frames * window, axis=-1)
    return np.asarray((np.abs(spectrum) * (2 / window.sum())) ** 2)


def _as_bytes(power: Floats) -> Tile:
    decibels = 10 * np.log10(np.maximum(power, 1e-12))
    return np.asarray(np.clip((decibels + _FLOOR) * (255 / _FLOOR), 0, 255).round(), np.uint8)


@lru_cache(maxsize=32)
def _bands(n_fft: int, rate: int, scale: str) -> Any:
    """Weights (ROWS, bins) of bins in rows, lowest frequency first: triangles, at least one bin wide; sparse."""
    top = rate / 2
    if scale == "mel":
        mel = np.linspace(0, 2595 * math.log10(1 + top / 700), ROWS + 1)
        edges = 700 * (10 ** (mel / 2595) - 1)
    else:
        edges = np.linspace(0, top, ROWS + 1)
    bins = np.arange(n_fft // 2 + 1) * rate / n_fft
    centres = (edges[:-1] + edges[1:]) / 2
    width = np.maximum(np.diff(edges), rate / n_fft)
    weights = np.maximum(0, 1 - np.abs(bins[None] - centres[:, None]) / width[:, None])
    return csr_array((weights / np.maximum(weights.sum(1, keepdims=True), 1e-9)).astype(np.float32))


class TileCache:
    """Tiles in memory and on disk. Methods may be called from several threads."""

    def __init__(self, folder: Path | None = None, *, most_bytes: int = 512 << 20, most_in_memory: int = 256) -> None:
        self.folder = make_folder(folder or cache_folder() / "tiles")
        self.most_bytes, self.most_in_memory = most_bytes, most_in_memory
        self._memory: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._computing = threading.Semaphore(max(2, cores()))
        self._unchecked = most_bytes  # bytes written since the folder was last measured

    def get(self, recording: Recording, scale: str, level: int, index: int) -> bytes:
        """A tile as bytes, row by row."""
        about = recording.info()
        check(about, scale, level, index)
        key = self._key(recording.path, scale, level, index)
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        path = self.folder / key[:2] / key[2:]
        data = self._read(path)
        if data is None:
            with self._computing:
                data = compute(recording.path, about, scale, level, index).tobytes()
            self._write(path, data)
        with self._lock:
            self._memory[key] = data
            while len(self._memory) > self.most_in_memory:
                self._memory.popitem(last=False)
        return data

    def _key(self, path: Path, scale: str, level: int, index: int) -> str:
        status = path.stat()
        about = (_VERSION, os.fsencode(path), status.st_size, status.st_mtime_ns, scale, level, index)
        return hashlib.sha256(repr(about).encode()).hexdigest()[:40]

    def _read(self, path: Path) -> bytes | None:
        try:
            data = path.read_bytes()
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)  # most recently used
        return data if len(data) == ROWS * COLUMNS else None

    def _write(self, path: Path, data: bytes) -> None:
        with suppress(OSError):  # on a full disk, tiles are recomputed
            path.parent.mkdir(exist_ok=True)
            with written_whole(path, admit=lambda path, draft: None) as draft:
                draft.write_bytes(data)
        with self._lock:
            self._unchecked += len(data)
            must_check = self._unchecked > self.most_bytes // 16
            if must_check:
                self._unchecked = 0
        if must_check:
            self._shrink()

    def _shrink(self) -> None:
        """Delete the least recently used tiles until the folder is below its limit."""
        files = []
        for path in self.folder.glob("??/*"):
            with suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self.most_bytes * 15 // 16:  # leaves room for what is written before the next check
                break
            with suppress(OSError):
                path.unlink()
            total -= size
