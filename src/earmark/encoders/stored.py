"""`files:FOLDER`: embeddings that another program computed, one file for each recording.

The embeddings of `site/night.wav` are in `night.npz` or `night.parquet`, next to it, in FOLDER or in FOLDER/site. A
file has a time and an embedding for each frame:

    night.npz       times (frames,) in seconds, embeddings (frames, dimension); encoder and licence, text, optional
    night.parquet   columns time and embedding, a list of numbers; encoder and licence in the metadata (extra parquet)

Parquet files are read in another process, since pyarrow crashes on some damaged files.

Times are those at which frames begin, or their centres, with a constant hop. Geometry and name of the encoder are those
of the first file in FOLDER; other files are compared with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from earmark.arrays import read_arrays
from earmark.audio import Samples
from earmark.encoders.base import ENCODERS, Card, Embeddings, Encoder
from earmark.errors import ArgumentError, DataError, MissingExtraError, reason
from earmark.files import json_digest
from earmark.isolation import IsolatedProcess
from earmark.parquet import read_lists
from earmark.schema import parse

_SUFFIXES = (".npz", ".parquet")
_LEAST_RATE = 1000  # samples per second, which bounds the rounding of durations
_LARGEST = 1 << 30  # bytes of a Parquet file's columns, with 8 for each number
_SECONDS = 120.0  # that reading a Parquet file may take
_parquet = IsolatedProcess(memory=2 << 30)  # the largest file takes 1.4 GB
_ABOUT = ("encoder", "licence")
_WINDOW = 60.0  # seconds that a network sees at once, if it sees more than a frame


class Stored(NamedTuple):
    """The content of a file."""

    times: npt.NDArray[np.float64]  # (frames,), in seconds
    embeddings: Embeddings  # (frames, dimension)
    encoder: str = ""
    licence: str = ""

    @property
    def hop(self) -> float:
        """Seconds from one frame to the next, if there are at least two."""
        return float(self.times[-1] - self.times[0]) / (len(self.times) - 1)


@ENCODERS.register("files", "embeddings computed elsewhere, a file for each recording")
class FileEncoder(Encoder):
    """Reads embeddings from files; the module docstring describes them."""

    target = "FOLDER"
    reads_sound = False

    def __init__(self, folder: str | Path, *, card: Card | None = None, fingerprint: str | None = None) -> None:
        self.folder = Path(folder)
        self._name = ""  # of the encoder that computed the embeddings
        if card is None:
            card, self._name = _discovered(self.folder)
        self.card = card
        self._expected = fingerprint or super().fingerprint

    @property
    def fingerprint(self) -> str:
        """Identifies the encoder of the first file or, for a model, that of its training data."""
        return self._expected

    def _identity(self) -> dict[str, object]:
        c = self.card
        geometry = [c.rate, c.hop_samples, c.dimension]
        return {"name": "files", "version": self.version, "encoder": self._name, "geometry": geometry}

    def _embed(self, samples: Samples) -> npt.NDArray[np.floating[Any]]:
        raise DataError(f"encoder {self.card.name!r} reads embeddings from files; expected a recording in a file")

    def find(self, recording: Path) -> Path:
        """The file with the embeddings of a recording."""
        candidates = [recording, *(self.folder.joinpath(*recording.parts[-depth:]) for depth in (3, 2, 1))]
        for path in candidates:
            for suffix in _SUFFIXES:
                if (place := path.with_suffix(suffix)).is_file():
                    return place
        names = " or ".join(recording.with_suffix(suffix).name for suffix in _SUFFIXES)
        raise DataError(f"{recording}: no embeddings: expected {names} next to it or in {self.folder}")

    def embeddings_of(self, recording: Path, samples: int) -> Embeddings:
        """Embeddings (frames, dimension) of a recording with that many samples at `card.rate`, checked."""
        path, c = self.find(recording), self.card
        stored = read_embeddings(path)
        self._check(path, stored)
        frames = max(1, c.frames(samples))
        start = int(stored.times[0] / c.hop + 0.01)  # of the first embedding, in frames
        if abs(start + len(stored.times) - frames) > start + 1:
            raise DataError(
                f"{path}: expected about {frames} frames of {c.hop:g} s, as {recording.name} has {samples / c.rate:g} "
                f"s, got {len(stored.times)}"
            )
        # the first and the last embedding are repeated at the ends, for up to half a window of the encoder
        return stored.embeddings[np.clip(np.arange(frames) - start, 0, len(stored.times) - 1)]

    def _check(self, path: Path, stored: Stored) -> None:
        c, dimension = self.card, stored.embeddings.shape[1]
        if dimension != c.dimension:
            raise DataError(f"{path}: expected {c.dimension} numbers per frame, got {dimension}")
        expected = stored.times[0] + np.arange(len(stored.times)) * c.hop
        if np.abs(stored.times - expected).max() > c.hop / 2:
            raise DataError(f"{path}: expected a hop of {c.hop:g} s, got {stored.hop:g} s")
        if json_digest({**self._identity(), "encoder": stored.encoder}) != self.fingerprint:
            wanted = f"the encoder {self._name!r}" if self._name else "the encoder that training used"
            raise DataError(f"{path}: expected embeddings of {wanted}, got those of {stored.encoder!r}")


def _discovered(folder: Path) -> tuple[Card, str]:
    """The card of the first file in a folder with two frames or more, and the name of its encoder."""
    if not folder.is_dir():
        raise ArgumentError(f"encoder: expected files:FOLDER, a folder of embeddings, got {str(folder)!r}")
    for path in _files(folder):
        stored = read_embeddings(path)
        if len(stored.times) > 1:
            return _card(path, folder, stored), stored.encoder
    raise ArgumentError(f"{folder}: expected embeddings (.npz or .parquet) of two frames or more, got none")


def _card(path: Path, folder: Path, stored: Stored) -> Card:
    hop = Fraction(stored.hop).limit_denominator(100_000)  # 0.16 s are 4/25 s
    rate = hop.denominator * -(-_LEAST_RATE // hop.denominator)
    hop_samples = int(hop * rate)
    fields = {
        "name": f"files:{folder}",
        "rate": rate,
        "window_samples": max(hop_samples, int(_WINDOW * rate)),
        "hop_samples": hop_samples,
        "dimension": stored.embeddings.shape[1],
        "licence": stored.licence or "that of the encoder",
        "summary": f"embeddings computed elsewhere, by {stored.encoder or 'an encoder without a name'}",
    }
    return parse(Card, fields, where=path, error=DataError)


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(place, name) for name in sorted(names) if Path(name).suffix in _SUFFIXES)


def read_embeddings(path: Path) -> Stored:
    """Read a file; anything invalid in it is a DataError with a one-line message."""
    stored = _read_parquet(path) if path.suffix == ".parquet" else _read_npz(path)
    times, x = stored.times, stored.embeddings
    if not x.size:
        raise DataError(f"{path}: expected embeddings, got an array of shape {x.shape}")
    wrong = times[~(np.isfinite(times) & (times >= 0))]
    if len(wrong):
        raise DataError(f"{path}: expected times from 0 on, got {wrong[0]:g}")
    if len(times) > 1:
        deviation = np.abs(times - times[0] - np.arange(len(times)) * stored.hop)
        if not stored.hop > 0 or deviation.max() > stored.hop / 10:
            k = int(np.abs(np.diff(times) - stored.hop).argmax())
            raise DataError(
                f"{path}: expected a constant hop, got {times[k + 1] - times[k]:g} s after frame {k}, and "
                f"{stored.hop:g} s on average"
            )
    bad = np.flatnonzero(~np.isfinite(x).all(axis=1))
    if len(bad):
        kind = "NaN" if np.isnan(x[bad[0]]).any() else "infinity, or a number beyond float32,"
        raise DataError(f"{path}: expected finite numbers, got {kind} in frame {bad[0]} ({times[bad[0]]:g} s)")
    return stored


def _read_npz(path: Path) -> Stored:
    shapes = {"times": ("f4 f8", ("frames",)), "embeddings": ("f2 f4 f8", ("frames", "dimension"))}
    arrays = read_arrays(path, shapes, optional=dict.fromkeys(_ABOUT, ("U", ())))
    about = (str(arrays[name])[:200] if name in arrays else "" for name in _ABOUT)
    return _stored(arrays["times"], arrays["embeddings"], *about)


def _read_parquet(path: Path) -> Stored:
    read = partial(read_lists, number="time", numbers="embedding", largest=_LARGEST)
    try:
        times, embeddings, about = _parquet.call(read, os.path.abspath(path), seconds=_SECONDS)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except ImportError as error:
        raise MissingExtraError("embeddings in Parquet", "parquet") from error
    except Exception as error:  # pyarrow's exceptions have no common base, and its process may crash
        raise DataError(f"{path}: not a Parquet file of embeddings: {reason(error)}") from error
    return _stored(times, embeddings, *(about.get(name, "")[:200] for name in _ABOUT))


def _stored(times: npt.NDArray[Any], embeddings: npt.NDArray[Any], encoder: str, licence: str) -> Stored:
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinity and are rejected later
        return Stored(np.asarray(times, np.float64), np.asarray(embeddings, np.float32), encoder, licence)
