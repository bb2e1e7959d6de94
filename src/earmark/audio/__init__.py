"""Files of sound, of any kind and rate, to mono float32: whole, in excerpts, as streams.

wav (also RF64 and extensible), aiff, flac, ogg (Vorbis or Opus), opus and mp3, with any number of channels, at any rate
and depth. Channels are averaged. Where another rate is asked for, sample k is the sound at k / rate seconds, and there
are as many as lie inside the file: ceil(duration * rate). Whole files, excerpts and streams give the same samples.

Resampling is soxr's at its quality HQ, made for 16-bit sound: its errors lie below the noise of most recordings, and
what VHQ would add costs time and is lost in log-mel features.

A file that cannot be heard whole is refused with its name and the reason, never quietly shortened: truncated files,
NaN, headers that promise more than there is, several recordings in one ogg. Nothing is allocated on the word of a
header. What goes unseen: damage that a codec decodes to noise, and the missing end of an mp3 that is cut between two
frames and has no header to count them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile
import soxr

from earmark.audio.containers import FOREIGN, KINDS, MP3_FRAME, bad_file, check_container, native_name, plain_name
from earmark.errors import ArgumentError
from earmark.files import written_whole
from earmark.timing import time_to_sample

__all__ = ["FOREIGN", "SUFFIXES", "AudioInfo", "find", "info", "read", "resample", "stream", "write"]

Samples = npt.NDArray[np.float32]
AnyPath = str | os.PathLike[str]

SUFFIXES = tuple(KINDS)
"""Suffixes of files that count as sound, in lower case."""

_LOWEST, _HIGHEST = 1000, 2_000_000  # Hz; a header outside is damaged, and obeying it could fill the memory
_LOUDEST = 1e9  # full scale is 1; float files in units of 16 or 24 bits still pass
_BLOCK = 1 << 18  # values decoded at a time
_MARGIN = 512  # samples at the lower of two rates: more than soxr's filter reaches to either side
_OGG_PAGE = 255 * 4096  # samples of Vorbis, at most


@dataclass(frozen=True)
class AudioInfo:
    """What the header of a file says: samples per channel at the file's own rate, and their duration in seconds."""

    path: Path
    rate: int
    channels: int
    duration: float
    samples: int
    format: str
    """Container and coding, as libsndfile calls them: "WAV PCM_16"."""

    def samples_at(self, rate: int) -> int:
        """How many samples the file gives at another rate: those whose time lies inside it."""
        return _length(self.samples, self.rate, rate)


def info(path: AnyPath) -> AudioInfo:
    """Rate, channels, duration and format of a file, without decoding it."""
    with _opened(path) as (_, about):
        return about


def read(path: AnyPath, *, rate: int | None = None, onset: float = 0.0, offset: float | None = None) -> Samples:
    """A file, or the part of it between two times, as mono samples: (samples,), full scale 1.

    An excerpt equals the same slice of the whole: from the sample nearest to `onset` up to, not including, the one
    nearest to `offset`. It costs little more than its length, except in opus files and at rates without a common
    measure (44,056 to 44,100 Hz): these are decoded from their beginning.

    Parameters
    ----------
    rate
        Samples per second wanted; the file's own by default.
    onset, offset
        In seconds. An offset past the end means the end; an onset past the end is an error.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.flac", np.zeros(22050), 44100)
    ...     len(read(Path(folder) / "a.flac", rate=16000)), len(read(Path(folder) / "a.flac", onset=0.4, offset=9))
    (8000, 4410)
    """
    _check_span(onset, offset)
    with _opened(path) as (file, about):
        rate = about.rate if rate is None else _checked_rate(rate)
        parts = list(_excerpt(file, about, rate, *_bounds(about, rate, onset, offset)))
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.float32), *parts])


def stream(
    path: AnyPath, *, rate: int | None = None, block: float = 10.0, onset: float = 0.0, offset: float | None = None
) -> Iterator[Samples]:
    """What `read` gives, in blocks of `block` seconds (the last one shorter), in little memory.

    A file that turns out to be damaged raises its error where the damage is, after good blocks have been given.
    """
    if not 0 < block < math.inf:
        raise ArgumentError(f"block must be a positive number of seconds, found {block}")
    _check_span(onset, offset)
    if rate is not None:
        _checked_rate(rate)
    return _stream(path, rate, block, onset, offset)


def resample(samples: npt.ArrayLike, from_rate: int, to_rate: int) -> Samples:
    """Mono samples at another rate: (samples,) to (ceil(samples * to_rate / from_rate),). Equal rates change nothing.

    >>> len(resample(np.zeros(48000), 48000, 44100))
    44100
    """
    sound = _mono(samples)
    _checked_rate(from_rate)
    if from_rate == _checked_rate(to_rate):
        return sound
    blocks = (sound[k : k + _BLOCK] for k in range(0, len(sound), _BLOCK))
    return np.concatenate(list(_resampled(blocks, from_rate, to_rate, _length(len(sound), from_rate, to_rate))))


def write(path: AnyPath, samples: npt.ArrayLike, rate: int, *, subtype: str | None = None) -> None:
    """Write mono samples to a file, whole or not at all; its suffix decides what kind.

    What exceeds full scale is clipped to it, except in a wav of subtype FLOAT or DOUBLE. The same samples give the same
    bytes in flac, mp3 and integer wav files; ogg and opus files have a random number in them, float wavs the time.

    Parameters
    ----------
    samples
        (samples,), full scale 1; at least one, all finite.
    subtype
        The coding, as libsndfile calls it: "PCM_24", "FLOAT". By default PCM_16 for flac and wav.
    """
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ArgumentError(f"{plain_name(path)}: sound is written to files ending in one of {', '.join(SUFFIXES)}")
    _, container, usual = KINDS[path.suffix.lower()]
    subtype = subtype or usual
    if not soundfile.check_format(container, subtype):
        known = ", ".join(soundfile.available_subtypes(container))
        raise ArgumentError(f"subtype={subtype!r} is nothing that {path.suffix} files hold. Choose from: {known}")
    sound = _mono(samples)
    if not len(sound):
        raise bad_file(path, "no samples to write")
    _check_values(path, sound[:, None], 0, _checked_rate(rate))
    if subtype not in ("FLOAT", "DOUBLE"):
        sound = np.clip(sound, -1, 1)
    try:
        with (
            written_whole(path) as draft,
            soundfile.SoundFile(native_name(draft), "w", rate, 1, subtype, format=container) as file,
        ):
            for k in range(0, len(sound), _BLOCK):  # libsndfile's Vorbis overflows its stack on long ones
                file.write(sound[k : k + _BLOCK])
    except soundfile.SoundFileError as error:
        raise ArgumentError(f"{plain_name(path)}: cannot be written at {rate} Hz: {_reason(error)}") from error
    except OSError as error:
        raise ArgumentError(f"{plain_name(path)}: cannot be written: {error.strerror}") from error


def find(
    folder: AnyPath, *, suffixes: Iterable[str] = SUFFIXES, unreadable: Callable[[Path], object] | None = None
) -> list[Path]:
    """Files of sound in a folder and the folders below it, sorted; by suffix, in upper or lower case.

    Hidden files and folders are left out, links to folders not followed.

    Parameters
    ----------
    suffixes
        In lower case. With `FOREIGN` added, also sound that `read` refuses and says how to convert.
    unreadable
        Called with each folder that cannot be looked into, and passed over; without it, the first is refused.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise bad_file(folder, "is a file, a folder was expected" if folder.exists() else "there is no such folder")

    def pass_over(error: OSError) -> None:
        if unreadable is None:
            raise bad_file(Path(error.filename), f"cannot be looked into: {error.strerror}") from error
        unreadable(Path(error.filename))

    wanted, found = frozenset(suffixes), []
    for place, folders, names in os.walk(folder, onerror=pass_over):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        found += [path for path in paths if path.suffix.lower() in wanted]
    return sorted(found)


def _check_span(onset: float, offset: float | None) -> None:
    if not onset >= 0:
        raise ArgumentError(f"onset must be at least 0 seconds, found {onset}")
    if offset is not None and not offset > onset:
        raise ArgumentError(f"offset must lie after onset, found onset {onset}, offset {offset}")


def _bounds(about: AudioInfo, rate: int, onset: float, offset: float | None) -> tuple[int, int]:
    """The first sample between two times and one past the last, counted at `rate`."""
    last = total = about.samples_at(rate)
    if onset >= about.duration or time_to_sample(onset, rate) >= total:
        raise bad_file(about.path, f"nothing to read at {onset} s, it ends at {about.duration:.3f} s")
    if offset is not None and offset < about.duration:
        last = min(total, time_to_sample(offset, rate))
    return time_to_sample(onset, rate), last


def _stream(path: AnyPath, rate: int | None, block: float, onset: float, offset: float | None) -> Iterator[Samples]:
    with _opened(path) as (file, about):
        rate = about.rate if rate is None else rate
        size = max(1, math.floor(block * rate + 1e-6))
        kept: list[Samples] = []
        missing = size
        for piece in _excerpt(file, about, rate, *_bounds(about, rate, onset, offset)):
            while len(piece) >= missing:
                yield np.concatenate([*kept, piece[:missing]]) if kept else piece[:missing]
                piece, kept, missing = piece[missing:], [], size
            if len(piece):
                kept.append(piece)
                missing -= len(piece)
        if kept:
            yield np.concatenate(kept)


def _excerpt(file: soundfile.SoundFile, about: AudioInfo, rate: int, first: int, last: int) -> Iterator[Samples]:
    """Samples `first` up to `last`, counted at `rate`, in pieces."""
    if rate == about.rate:
        yield from _blocks(file, about, first, last)
        return
    common = math.gcd(about.rate, rate)
    p, q = about.rate // common, rate // common  # p samples in are exactly q samples out
    margin = math.ceil(_MARGIN * max(1.0, p / q))
    # soxr starts at phase 0, so the excerpt must start at a whole number of periods. With long periods soxr rounds its
    # clock, and after an hour is off by a hundredth of a sample: such files are resampled from their beginning.
    begin = max(0, (first * p // q - margin) // p * p) if p <= 5000 and q <= 640 else 0
    end = min(about.samples, _length(last, q, p) + margin)
    skip = first - begin // p * q
    for piece in _resampled(_blocks(file, about, begin, end), about.rate, rate, last - begin // p * q):
        yield piece[skip:]
        skip = max(0, skip - len(piece))


def _resampled(blocks: Iterable[Samples], from_rate: int, to_rate: int, samples: int) -> Iterator[Samples]:
    """The first `samples` samples of the blocks at another rate."""
    machine = soxr.ResampleStream(from_rate, to_rate, 1, dtype="float32", quality="HQ")
    for block in blocks:
        piece = machine.resample_chunk(block)[:samples]
        samples -= len(piece)
        yield piece
    # soxr rounds the number of samples, halves sometimes up and sometimes down; silence after the end gives the rest
    silence = np.zeros(math.ceil(_MARGIN * max(1.0, from_rate / to_rate)), np.float32)
    yield machine.resample_chunk(silence, last=True)[:samples]


def _blocks(file: soundfile.SoundFile, about: AudioInfo, first: int, last: int) -> Iterator[Samples]:
    """Samples of the file, channels averaged, at its own rate."""
    at = first
    if about.format.endswith("OPUS"):
        at = 0  # Opus decodes by what came before; seconds after a jump it may still differ
    elif about.format.endswith("VORBIS"):
        at = min(first, max(0, about.samples - _OGG_PAGE))  # libsndfile errs in the last page
    elif about.format.startswith("MP3"):
        at = max(0, first - 64 * MP3_FRAME)  # a frame may need bits of many before it
    if at:
        file.seek(at)
    while at < last:
        count = min(last - at, max(1, _BLOCK // about.channels))
        block = file.read(count, dtype="float32", always_2d=True)
        if not len(block):
            if not about.format.startswith("MP3") or last - at > 2 * MP3_FRAME:
                raise bad_file(about.path, f"truncated: ends at {at / about.rate:.3f} s of {about.duration:.3f} s")
            block = np.zeros((last - at, 1), np.float32)  # some encoders count the header as a frame
        _check_values(about.path, block, at, about.rate)
        at += len(block)
        if at > first:
            yield _averaged(block[-(at - first) :])


def _averaged(block: Samples) -> Samples:
    mono = block[:, 0]
    if block.shape[1] > 1:
        for channel in block.T[1:]:  # mean(axis=1) is slow where the axis is short
            mono = np.add(mono, channel)
        mono /= np.float32(block.shape[1])
    return mono


def _check_values(path: Path, block: Samples, first: int, rate: int) -> None:
    # NaN is passed on by max and min, and fails every comparison
    if not max(block.max(), -block.min()) <= _LOUDEST:
        bad = ~(np.abs(block) <= _LOUDEST).all(axis=1)
        where = int(bad.argmax())
        value = block[where][~(np.abs(block[where]) <= _LOUDEST)][0]
        raise bad_file(path, f"sample {first + where} (at {(first + where) / rate:.3f} s) is {value}, full scale is 1")


@contextmanager
def _opened(path: AnyPath) -> Iterator[tuple[soundfile.SoundFile, AudioInfo]]:
    """The file, if it can be heard whole as far as headers tell; errors of decoding inside become ours."""
    path = Path(path)
    counted = check_container(path)
    try:
        with soundfile.SoundFile(native_name(path)) as file:
            samples = file.frames if counted is None else counted
            if file.frames < samples:
                raise bad_file(path, "an mp3 of variable bit rate that does not say how long it is; convert it to flac")
            if samples > 1 << 48:
                raise bad_file(path, "its header does not say how long it is; write it anew, for example with flac")
            if not samples:
                raise bad_file(path, "holds no samples")
            if not _LOWEST <= file.samplerate <= _HIGHEST:
                raise bad_file(path, f"its header is damaged: a rate of {file.samplerate} Hz")
            rate, kind = file.samplerate, f"{file.format} {file.subtype}"
            yield file, AudioInfo(path, rate, file.channels, samples / rate, samples, kind)
    except soundfile.SoundFileError as error:
        raise bad_file(path, f"damaged, truncated or without samples: {_reason(error)}") from error


def _length(samples: int, from_rate: int, to_rate: int) -> int:
    return -(-samples * to_rate // from_rate)


def _mono(samples: npt.ArrayLike) -> Samples:
    given = np.asarray(samples)
    if given.ndim != 1:
        raise ArgumentError(f"mono sound has shape (samples,), found {given.shape}")
    if given.dtype.kind in "biu":  # nearly all of it would lie beyond full scale
        raise ArgumentError(
            f"samples must be floating-point numbers with full scale 1, found {given.dtype}; divide them by their own "
            "full scale: samples / 32768 for int16"
        )
    return given.astype(np.float32, copy=False)


def _checked_rate(rate: int) -> int:
    if not (_LOWEST <= rate <= _HIGHEST and rate == int(rate)):
        raise ArgumentError(f"rate must be a whole number from {_LOWEST} to {_HIGHEST} Hz, found {rate}")
    return int(rate)


def _reason(error: soundfile.SoundFileError) -> str:
    return str(getattr(error, "error_string", error)).rstrip(".")
