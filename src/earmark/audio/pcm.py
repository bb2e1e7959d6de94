"""Live sound: raw samples from a pipe, and files that are still being written.

`from_pipe` and `from_growing` give `LiveSound`, whose `blocks` are mono float32 at any rate: the samples that
`earmark.audio.read` gives for the same bytes in a finished file. Raw samples are little-endian with interleaved
channels. A wav may arrive through a pipe or grow: its header states rate, channels and encoding, and its length is
ignored, because recorders write it last. Other kinds of files cannot be read before they are finished.
"""

import io
import math
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from earmark.audio import AnyPath, averaged, check_values, checked_rate
from earmark.audio.containers import bad_file, riff_chunks
from earmark.audio.resampling import Samples, resampled
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.interrupt import Interruption

ENCODINGS = {"u8": 1, "s16": 2, "s24": 3, "s32": 4, "f32": 4, "f64": 8}
"""Encodings and their bytes per value: unsigned, signed and float, little-endian."""

_CHUNK = 1 << 16  # bytes read at once
_PAUSE = 0.05  # seconds between checks of a file that has not grown
_UNKNOWN = 0x7FFFF000  # stated lengths from here on mean unknown
_RESAMPLER = 2048  # samples at the lower rate: more than soxr buffers (1,343 measured, tests/test_live.py)
_LONGEST_HEAD = 1 << 20  # bytes before the samples of a wav
_NOT_LIVE = {b"fLaC": "flac", b"OggS": "ogg", b"FORM": "aiff", b"RIFX": "a big-endian wav", b"ID3\3": "mp3"}


@dataclass(frozen=True)
class PcmFormat:
    """Format of raw samples.

    >>> PcmFormat(44100, channels=2, encoding="s16").decoded(bytes([0, 64, 0, 192]))
    array([[ 0.5, -0.5]], dtype=float32)
    """

    rate: int
    channels: int = 1
    encoding: str = "s16"

    def __post_init__(self) -> None:
        checked_rate(self.rate)
        if not 1 <= self.channels <= 1024:
            raise ArgumentError(f"channels: expected 1 to 1024, got {self.channels}")
        if self.encoding not in ENCODINGS:
            raise unknown_name("encoding", self.encoding, ENCODINGS)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one value of every channel."""
        return self.channels * ENCODINGS[self.encoding]

    def decoded(self, data: bytes) -> Samples:
        """Decode whole frames of bytes to (frames, channels), full scale 1."""
        values: npt.NDArray[np.float32]
        if self.encoding == "u8":
            values = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / np.float32(128)
        elif self.encoding == "s24":
            wide = np.zeros((len(data) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            values = wide.view("<i4")[:, 0].astype(np.float32) / np.float32(1 << 31)
        elif self.encoding in ("f32", "f64"):
            with np.errstate(over="ignore", invalid="ignore"):  # values beyond full scale are rejected later
                values = np.frombuffer(data, f"<f{ENCODINGS[self.encoding]}").astype(np.float32)
        else:
            bytes_each = ENCODINGS[self.encoding]
            values = np.frombuffer(data, f"<i{bytes_each}").astype(np.float32) / np.float32(1 << 8 * bytes_each - 1)
        return values.reshape(-1, self.channels)


@dataclass(frozen=True)
class LiveSound:
    """Sound that is still arriving; its blocks can be read once."""

    name: str
    format: PcmFormat
    chunks: Iterable[bytes]

    def delay(self, rate: int) -> float:
        """Most seconds of sound that resampling to `rate` buffers."""
        return 0.0 if rate == self.format.rate else _RESAMPLER / min(rate, self.format.rate)

    def blocks(self, rate: int, block: float) -> Iterator[Samples]:
        """Mono samples at `rate`, in blocks as soon as `block` seconds have arrived; the last one is shorter.

        Sound that ends in the middle of a sample or contains NaN raises its error after the blocks before it.
        """
        checked_rate(rate)
        if not 0 < block < math.inf:
            raise ArgumentError(f"block: expected a positive number of seconds, got {block}")
        errors: list[DataError] = []
        blocks = self._mono(max(1, math.floor(block * self.format.rate)), errors)
        if rate != self.format.rate:
            blocks = (piece for piece in resampled(blocks, self.format.rate, rate) if len(piece))
        yield from blocks
        if errors:
            raise errors[0]

    def _mono(self, frames: int, errors: list[DataError]) -> Iterator[Samples]:
        """Blocks at the rate of the sound; an error that ends them is added to `errors`."""
        at = 0
        for data in _cut(self.chunks, frames * self.format.frame_bytes):
            whole = len(data) // self.format.frame_bytes * self.format.frame_bytes
            sound = self.format.decoded(data[:whole])
            try:
                if len(sound):
                    check_values(Path(self.name), sound, at, self.format.rate)
                    yield averaged(sound)
                if whole < len(data):
                    raise bad_file(
                        Path(self.name),
                        f"ends in the middle of a sample: expected {self.format.frame_bytes} bytes for "
                        f"{self.format.channels} x {self.format.encoding}, got {len(data) - whole}",
                    )
            except DataError as error:
                errors.append(error)
                return
            at += len(sound)


def from_pipe(
    pipe: IO[bytes], name: str, format: PcmFormat | None = None, *, stop: Interruption | None = None
) -> LiveSound:
    """Sound from a pipe: raw samples in the given format, or a wav by default. It ends early on request of `stop`.

    >>> import io
    >>> sound = from_pipe(io.BytesIO(bytes(8)), "a pipe", PcmFormat(44100))
    >>> [len(block) for block in sound.blocks(44100, 1.0)]
    [4]
    """
    chunks = _piped(pipe, Interruption() if stop is None else stop)
    if format is not None:
        return LiveSound(name, format, chunks)
    format, first, stated, data = _wav_head(chunks, name)
    rest = chain([data[first:]], chunks)
    return LiveSound(name, format, rest if _is_unknown(stated) else _first(rest, stated))


def from_growing(
    path: AnyPath, format: PcmFormat | None = None, *, idle: float | None = None, stop: Interruption | None = None
) -> LiveSound:
    """Sound from a file that is still being written: raw samples in the given format, or a wav by default.

    It ends when the file has not grown for `idle` seconds (never by default), on request of `stop`, or where a finished
    wav has another chunk after its samples.
    """
    if idle is not None and not idle >= 0:
        raise ArgumentError(f"idle: expected a number of seconds, got {idle}")
    path = Path(path)
    if not path.is_file():
        raise bad_file(path, "is not a regular file" if path.exists() else "no such file")
    stop = Interruption() if stop is None else stop
    if format is not None:
        with path.open("rb") as file:
            if file.read(12)[::8] == b"RW":  # RIFF....WAVE
                raise bad_file(
                    path, "contains wav, whose header states the format of its samples; omit rate and encoding"
                )
        return LiveSound(str(path), format, _growing(path, 0, idle, stop, is_wav=False))
    format, first, _, _ = _wav_head(_growing(path, 0, idle, stop, is_wav=False), str(path))
    return LiveSound(str(path), format, _growing(path, first, idle, stop, is_wav=True))


def _piped(pipe: IO[bytes], stop: Interruption) -> Iterator[bytes]:
    read = getattr(pipe, "read1", pipe.read)  # read1 returns what has arrived and does not wait for more
    while data := stop.wait(read, _CHUNK):
        yield data


def _growing(path: Path, first: int, idle: float | None, stop: Interruption, *, is_wav: bool) -> Iterator[bytes]:
    """Bytes of a file from `first` on, while it grows."""
    with path.open("rb", buffering=0) as file:
        file.seek(first)
        grown = time.monotonic()
        while not stop:
            end = _end_of_samples(file, first) if is_wav else None
            data = file.read(_CHUNK if end is None else min(_CHUNK, max(0, end - file.tell())))
            if data:
                grown = time.monotonic()
                yield data
            elif end is not None or (idle is not None and time.monotonic() - grown >= idle):
                return
            elif path.exists() and path.stat().st_size < file.tell():
                raise bad_file(path, "was shortened while it was being read")
            else:
                stop.wait(time.sleep, _PAUSE)


def _end_of_samples(file: IO[bytes], first: int) -> int | None:
    """Where the samples of a wav end, if its header has been completed and another chunk follows them."""
    here = file.tell()
    try:
        file.seek(first - 4)
        stated = struct.unpack("<I", file.read(4))[0]
        if _is_unknown(stated):
            return None
        end = first + stated
        file.seek(end + stated % 2)
        head = file.read(8)
        # A stale length may point into samples: what follows must look like a complete chunk.
        if len(head) < 8 or not re.fullmatch(rb"[\w ]{4}", head[:4]):
            return None
        size = struct.unpack("<I", head[4:])[0]
        return end if file.tell() + size <= file.seek(0, 2) else None
    finally:
        file.seek(here)


def _is_unknown(stated: int) -> bool:
    return stated == 0 or stated >= _UNKNOWN


def _wav_head(chunks: Iterator[bytes], name: str) -> tuple[PcmFormat, int, int, bytes]:
    """Format of a wav, where its samples start, how many bytes of them are stated, and the bytes read so far."""
    data = b""
    for chunk in chunks:
        data += chunk
        head = _parsed_head(data, Path(name))
        if head is not None:
            return *head, data
        if len(data) > _LONGEST_HEAD:
            raise bad_file(Path(name), f"no samples within {_LONGEST_HEAD} bytes of its wav header")
    raise bad_file(Path(name), "contains no samples: it ended before its wav header did")


def _parsed_head(data: bytes, path: Path) -> tuple[PcmFormat, int, int] | None:
    """The same, or None while bytes are missing."""
    if len(data) < 12:
        return None
    kind = next((kind for magic, kind in _NOT_LIVE.items() if data.startswith(magic)), None)
    if kind is not None:
        raise bad_file(
            path, f"contains {kind}, which cannot be read while it grows; record to wav, or pipe raw samples"
        )
    if data[:4] not in (b"RIFF", b"RF64") or data[8:12] != b"WAVE":
        raise bad_file(path, "has no wav header; for raw samples, give at least their rate (--rate 44100)")
    format = None
    file = io.BytesIO(data)
    file.seek(12)
    for name, size, body in riff_chunks(file):
        if name == b"data":
            if format is None:
                raise bad_file(path, "its wav header has samples before their format")
            return format, body, size
        if name == b"fmt " and len(data) >= body + size:
            format = _wav_format(data[body : body + size], path)
    return None


def _wav_format(body: bytes, path: Path) -> PcmFormat:
    if len(body) < 16:
        raise bad_file(path, f"its wav header is damaged: expected a format of at least 16 bytes, got {len(body)}")
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
    if tag == 0xFFFE and len(body) >= 26:  # extensible: the tag is the start of a longer identifier
        tag = struct.unpack_from("<H", body, 24)[0]
    known = {(1, 8): "u8", (1, 16): "s16", (1, 24): "s24", (1, 32): "s32", (3, 32): "f32", (3, 64): "f64"}
    if (tag, bits) not in known:
        raise bad_file(
            path, f"wav of encoding {tag} with {bits} bits cannot be read while it grows; record PCM or float"
        )
    try:
        return PcmFormat(rate, channels, known[tag, bits])
    except ArgumentError as error:
        raise bad_file(path, f"its wav header is damaged: {error}") from error


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
