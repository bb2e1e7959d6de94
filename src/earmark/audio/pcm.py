"""Sound that is still arriving: raw samples from a pipe, and files that grow.

`from_pipe` and `from_growing` give `LiveSound`, whose `blocks` are mono float32 at any rate: the samples that
`earmark.audio.read` would give for the same bytes in a finished file. Raw samples are little-endian, channels
interleaved. A wav may come through a pipe, or grow: its header says rate, channels and encoding, and its length is not
believed, because recorders write it last. Other kinds of files cannot be read before they are finished.
"""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import soxr

from earmark.audio import AnyPath, Samples, _averaged, _check_values, _checked_rate, _length
from earmark.audio.containers import bad_file
from earmark.errors import ArgumentError, DataError, unknown_name

__all__ = ["ENCODINGS", "LiveSound", "PcmFormat", "Stop", "from_growing", "from_pipe"]

ENCODINGS = {"u8": 1, "s16": 2, "s24": 3, "s32": 4, "f32": 4, "f64": 8}
"""Names of encodings, and bytes per value: unsigned, signed and float, little-endian."""

_CHUNK = 1 << 16  # bytes read at once
_PAUSE = 0.05  # seconds between looks at a file that has not grown
_UNKNOWN = 0x7FFFF000  # lengths from here on mean that a recorder did not know
_RESAMPLER = 2048  # samples at the lower rate: more than soxr keeps to itself (1,343 found, tests/test_live.py)
_LONGEST_HEAD = 1 << 20  # bytes before the samples of a wav
_NOT_LIVE = {b"fLaC": "flac", b"OggS": "ogg", b"FORM": "aiff", b"RIFX": "a big-endian wav", b"ID3\3": "mp3"}


@dataclass(frozen=True)
class PcmFormat:
    """What raw samples mean.

    >>> PcmFormat(44100, channels=2, encoding="s16").decoded(bytes([0, 64, 0, 192]))
    array([[ 0.5, -0.5]], dtype=float32)
    """

    rate: int
    channels: int = 1
    encoding: str = "s16"

    def __post_init__(self) -> None:
        _checked_rate(self.rate)
        if not 1 <= self.channels <= 1024:
            raise ArgumentError(f"channels must be from 1 to 1024, found {self.channels}")
        if self.encoding not in ENCODINGS:
            raise unknown_name("encoding", self.encoding, ENCODINGS)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one value of every channel."""
        return self.channels * ENCODINGS[self.encoding]

    def decoded(self, data: bytes) -> Samples:
        """Whole frames of bytes to (frames, channels), full scale 1."""
        values: npt.NDArray[np.float32]
        if self.encoding == "u8":
            values = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)
        elif self.encoding == "s24":
            wide = np.zeros((len(data) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            values = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)
        elif self.encoding in ("f32", "f64"):
            values = np.frombuffer(data, f"<f{ENCODINGS[self.encoding]}").astype(np.float32)
        else:
            bytes_each = ENCODINGS[self.encoding]
            values = np.frombuffer(data, f"<i{bytes_each}").astype(np.float32) / np.float32(1 << 8 * bytes_each - 1)
        return values.reshape(-1, self.channels)


class Stop:
    """Ends live sound when asked: at once while it waits for sound, else before it waits again.

    Its `ask` can be a handler of signals. So an interruption never tears a decision in two, and what was heard until
    then is decided.
    """

    def __init__(self) -> None:
        self.asked = False
        self._waiting = False

    def ask(self, *_: object) -> None:
        """Let the sound end here."""
        self.asked = True
        if self._waiting:
            raise KeyboardInterrupt

    @contextmanager
    def _wait(self) -> Iterator[None]:
        self._waiting = True
        try:
            if self.asked:
                raise KeyboardInterrupt
            yield
        finally:
            self._waiting = False


@dataclass(frozen=True)
class LiveSound:
    """Sound that arrives; to be heard once."""

    name: str
    format: PcmFormat
    chunks: Iterable[bytes]

    def delay(self, rate: int) -> float:
        """Seconds of sound that resampling to `rate` keeps to itself, at most."""
        return 0.0 if rate == self.format.rate else _RESAMPLER / min(rate, self.format.rate)

    def blocks(self, rate: int, block: float) -> Iterator[Samples]:
        """Mono samples at `rate`, in blocks as soon as `block` seconds are there; the last one is shorter.

        Sound that ends in the middle of a sample, or holds NaN, raises its error after the blocks before it were given.
        """
        _checked_rate(rate)
        if not 0 < block < math.inf:
            raise ArgumentError(f"block must be a positive number of seconds, found {block}")
        trouble: list[DataError] = []
        yield from _at_rate(self._mono(max(1, math.floor(block * self.format.rate)), trouble), self.format.rate, rate)
        if trouble:
            raise trouble[0]

    def _mono(self, frames: int, trouble: list[DataError]) -> Iterator[Samples]:
        """Blocks at the sound's own rate; what ends them badly is put into `trouble`."""
        at = 0
        for data in _cut(self.chunks, frames * self.format.frame_bytes):
            whole = len(data) // self.format.frame_bytes * self.format.frame_bytes
            sound = self.format.decoded(data[:whole])
            try:
                if len(sound):
                    _check_values(Path(self.name), sound, at, self.format.rate)
                    yield _averaged(sound)
                if whole < len(data):
                    raise bad_file(
                        Path(self.name),
                        f"ends in the middle of a sample: {len(data) - whole} bytes left, a sample of "
                        f"{self.format.channels} x {self.format.encoding} has {self.format.frame_bytes}",
                    )
            except DataError as error:
                trouble.append(error)
                return
            at += len(sound)


def from_pipe(pipe: IO[bytes], name: str, format: PcmFormat | None = None, *, stop: Stop | None = None) -> LiveSound:
    """Sound from a pipe: raw samples in the format given, or a wav if none is.

    Examples
    --------
    >>> import io
    >>> sound = from_pipe(io.BytesIO(bytes(8)), "a pipe", PcmFormat(44100))
    >>> [len(block) for block in sound.blocks(44100, 1.0)]
    [4]
    """
    chunks = _piped(pipe, stop or Stop())
    if format is not None:
        return LiveSound(name, format, chunks)
    format, first, promised, data = _wav_head(chunks, name)
    rest = _joined(data[first:], chunks)
    return LiveSound(name, format, rest if _is_unknown(promised) else _first(rest, promised))


def from_growing(
    path: AnyPath, format: PcmFormat | None = None, *, idle: float | None = None, stop: Stop | None = None
) -> LiveSound:
    """Sound from a file that somebody is still writing: raw samples in the format given, or a wav if none is.

    It ends when the file has not grown for `idle` seconds (never by default), when `stop` asks, or where a finished wav
    says that something other than samples follows.
    """
    if idle is not None and not idle >= 0:
        raise ArgumentError(f"idle must be a number of seconds, found {idle}")
    path = Path(path)
    if not path.is_file():
        raise bad_file(path, "is not a regular file" if path.exists() else "there is no such file")
    stop = stop or Stop()
    if format is not None:
        with path.open("rb") as file:
            if file.read(12)[::8] == b"RW":  # RIFF....WAVE
                raise bad_file(path, "holds wav, whose header says what its samples are; leave rate and encoding away")
        return LiveSound(str(path), format, _growing(path, 0, idle, stop, is_wav=False))
    format, first, _, _ = _wav_head(_growing(path, 0, idle, stop, is_wav=False), str(path))
    return LiveSound(str(path), format, _growing(path, first, idle, stop, is_wav=True))


def _piped(pipe: IO[bytes], stop: Stop) -> Iterator[bytes]:
    read = getattr(pipe, "read1", pipe.read)  # read1 gives what there is, and does not wait for more
    while True:
        try:
            with stop._wait():
                data = read(_CHUNK)
        except KeyboardInterrupt:
            if stop.asked:
                return
            raise
        if not data:
            return
        yield data


def _growing(path: Path, first: int, idle: float | None, stop: Stop, *, is_wav: bool) -> Iterator[bytes]:
    """Bytes of a file from `first` on, for as long as it grows."""
    with path.open("rb", buffering=0) as file:
        file.seek(first)
        grown = time.monotonic()
        while not stop.asked:
            end = _end_of_samples(file, first) if is_wav else None
            data = file.read(_CHUNK if end is None else min(_CHUNK, max(0, end - file.tell())))
            if data:
                grown = time.monotonic()
                yield data
            elif end is not None or (idle is not None and time.monotonic() - grown >= idle):
                return
            elif path.exists() and path.stat().st_size < file.tell():
                raise bad_file(path, "was cut shorter while it was being read")
            else:
                try:
                    with stop._wait():
                        time.sleep(_PAUSE)
                except KeyboardInterrupt:
                    if not stop.asked:
                        raise


def _end_of_samples(file: IO[bytes], first: int) -> int | None:
    """Where the samples of a wav end, if its header has been completed and another chunk follows them."""
    here = file.tell()
    try:
        file.seek(first - 4)
        promised = struct.unpack("<I", file.read(4))[0]
        if _is_unknown(promised):
            return None
        end = first + promised
        file.seek(end + promised % 2)
        head = file.read(8)
        # A stale length may point into samples: what follows must look like a chunk, and be there whole.
        if len(head) < 8 or not re.fullmatch(rb"[\w ]{4}", head[:4]):
            return None
        size = struct.unpack("<I", head[4:])[0]
        return end if file.tell() + size <= file.seek(0, 2) else None
    finally:
        file.seek(here)


def _is_unknown(promised: int) -> bool:
    return promised == 0 or promised >= _UNKNOWN


def _wav_head(chunks: Iterator[bytes], name: str) -> tuple[PcmFormat, int, int, bytes]:
    """Format of a wav, where its samples begin, how many bytes of them are promised, and the bytes read so far."""
    data = b""
    for chunk in chunks:
        data += chunk
        found = _parsed_head(data, Path(name))
        if found is not None:
            return *found, data
        if len(data) > _LONGEST_HEAD:
            raise bad_file(Path(name), f"no samples within {_LONGEST_HEAD} bytes of its wav header")
    raise bad_file(Path(name), "holds no samples: it ended before its wav header did")


def _parsed_head(data: bytes, path: Path) -> tuple[PcmFormat, int, int] | None:
    """The same, or None while bytes are missing."""
    if len(data) < 12:
        return None
    kind = next((kind for magic, kind in _NOT_LIVE.items() if data.startswith(magic)), None)
    if kind is not None:
        raise bad_file(path, f"holds {kind}, which cannot be read while it grows; record to wav, or pipe raw samples")
    if data[:4] not in (b"RIFF", b"RF64") or data[8:12] != b"WAVE":
        raise bad_file(path, "has no wav header; for raw samples, say at least their rate (--rate 44100)")
    at, format = 12, None
    while len(data) >= at + 8:
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        if name == b"data":
            if format is None:
                raise bad_file(path, "its wav header has samples before it says what they are")
            return format, at + 8, size
        if name == b"fmt " and len(data) >= at + 8 + size:
            format = _wav_format(data[at + 8 : at + 8 + size], path)
        at += 8 + size + size % 2
    return None


def _wav_format(body: bytes, path: Path) -> PcmFormat:
    if len(body) < 16:
        raise bad_file(path, f"its wav header is damaged: a format of {len(body)} bytes, 16 or more expected")
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if tag == 0xFFFE and len(body) >= 26:  # extensible: the tag stands at the front of a longer name
        tag = struct.unpack_from("<H", body, 24)[0]
    known = {(1, 8): "u8", (1, 16): "s16", (1, 24): "s24", (1, 32): "s32", (3, 32): "f32", (3, 64): "f64"}
    if (tag, bits) not in known:
        raise bad_file(path, f"wav of coding {tag} with {bits} bits cannot be read while it grows; record PCM or float")
    try:
        return PcmFormat(rate, channels, known[tag, bits])
    except ArgumentError as error:
        raise bad_file(path, f"its wav header is damaged: {error}") from error


def _joined(head: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if head:
        yield head
    yield from chunks


def _first(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk[:size]
        size -= len(chunk)
        if size <= 0:
            return


def _cut(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of `size`, the last one shorter."""
    kept = bytearray()
    for chunk in chunks:
        kept += chunk
        while len(kept) >= size:
            yield bytes(kept[:size])
            del kept[:size]
    if kept:
        yield bytes(kept)


def _at_rate(blocks: Iterable[Samples], from_rate: int, to_rate: int) -> Iterator[Samples]:
    if from_rate == to_rate:
        yield from blocks
        return
    machine = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
    heard = given = 0
    for block in blocks:
        heard += len(block)
        piece = machine.resample_chunk(block)
        given += len(piece)
        if len(piece):
            yield piece
    # As for files: soxr rounds the number of samples, silence after the end gives the rest.
    silence = np.zeros(math.ceil(_RESAMPLER * max(1.0, from_rate / to_rate)), np.float32)
    rest = machine.resample_chunk(silence, last=True)[: _length(heard, from_rate, to_rate) - given]
    if len(rest):
        yield rest
