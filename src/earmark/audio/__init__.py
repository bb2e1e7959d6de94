"""Audio files of any kind and rate as mono float32: whole, in excerpts, as streams.

Formats are wav (also RF64 and extensible), aiff, flac, ogg (Vorbis or Opus), opus and mp3, with any number of channels
and any rate and depth. Channels are averaged. At another rate, sample k is the sound at k / rate seconds, and there are
ceil(duration * rate) samples. Whole files, excerpts and streams give the same samples.

Resampling uses soxr at quality HQ, which is intended for 16-bit audio: its errors are below the noise of most
recordings, and log-mel features do not show the difference from VHQ.

Files with damaged audio are rejected with their name, the reason and the time of the first gap, never silently
shortened or shifted. With `damaged="keep"` the rest is read, and gaps are silence, so that everything else keeps
its time; `AudioInfo.gaps` lists them. NaN, damaged headers and several streams in one ogg file are always rejected.
Two kinds of damage are not detected: errors that a codec without checksums (wav, aiff, mp3) decodes to noise, and the
missing end of an mp3 that is cut between two frames and has no header with their number.
"""

import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import soundfile

from earmark.audio.containers import FOREIGN, KINDS, bad_file, native_name, plain_name
from earmark.audio.intact import examine, reason_of
from earmark.audio.pieces import Contents, ForwardFile, Gap, Piece, PieceFile
from earmark.audio.resampling import Grid, Samples, resampled, resampled_length
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.files import written_whole
from earmark.text import as_names
from earmark.timing import time_to_sample

__all__ = [
    "DAMAGED",
    "FOREIGN",
    "SUFFIXES",
    "AnyPath",
    "AudioInfo",
    "Gap",
    "Samples",
    "find",
    "info",
    "read",
    "resample",
    "stream",
    "write",
]

AnyPath = str | os.PathLike[str]

SUFFIXES = tuple(KINDS)
"""Suffixes of audio files, in lower case."""

KEEP_HINT = "; process the rest with --damaged keep"
"""End of the message about damaged audio: advice for detection, the only command with this option."""

DAMAGED = ("refuse", "keep")
"""What to do with sound that is not intact: raise an error, or read the rest with silence in the gaps."""

_LOWEST_RATE, _HIGHEST_RATE = 1000, 2_000_000  # Hz; a header outside this range is damaged
_LONGEST_GAP = 86400.0  # seconds; a longer one comes from a damaged header, and its silence would fill the memory
_LOUDEST = 1e9  # full scale is 1; float files scaled like 16-bit or 24-bit integers still pass
_BLOCK = 1 << 18  # values decoded at a time
_OGG_PAGE = 255 * 4096  # samples of Vorbis, at most


@dataclass(frozen=True)
class AudioInfo:
    """Header of a file; `samples` counts per channel at the file's rate, `duration` is in seconds."""

    path: Path
    rate: int
    channels: int
    duration: float
    samples: int
    format: str  # container and encoding as named by libsndfile, such as "WAV PCM_16"
    gaps: tuple[Gap, ...] = ()  # missing sound, which is read as silence

    def samples_at(self, rate: int) -> int:
        """Number of samples at another rate."""
        return resampled_length(self.samples, self.rate, rate)


def info(path: AnyPath, *, damaged: str = "refuse") -> AudioInfo:
    """Rate, channels, duration and format of a file, and with `damaged="keep"` its gaps; without decoding it."""
    with _opened(path, damaged) as sound:
        return sound.about


def read(
    path: AnyPath,
    *,
    rate: int | None = None,
    onset: float = 0.0,
    offset: float | None = None,
    damaged: str = "refuse",
) -> Samples:
    """Read a file, or its part from `onset` to `offset` in seconds, as mono samples: (samples,), full scale 1.

    The rate is that of the file by default. An offset past the end is the end; an onset past the end is an error. A
    file whose sound is not intact is an error, or with `damaged="keep"` has silence in its gaps.

    An excerpt equals the same slice of the whole file: from the sample nearest to `onset` up to, not including, the one
    nearest to `offset`. The cost is proportional to its length, but between rates with a long period (44,056 to 44,100
    Hz) up to 30 s more are read, and Opus files are always decoded from their start.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.flac", np.zeros(22050), 44100)
    ...     len(read(Path(folder) / "a.flac", rate=16000)), len(read(Path(folder) / "a.flac", onset=0.4, offset=9))
    (8000, 4410)
    """
    _check_span(onset, offset)
    with _opened(path, damaged) as sound:
        rate = sound.about.rate if rate is None else checked_rate(rate)
        parts = list(_excerpt(sound, rate, *_bounds(sound.about, rate, onset, offset)))
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.float32), *parts])


def read_pieces(path: AnyPath, starts: Sequence[int], samples: int, *, damaged: str = "refuse") -> Samples:
    """Many short excerpts of a file at its own rate, which is opened once: (excerpts, samples).

    `starts` are the first samples of the excerpts, in increasing order; what lies past the end is silence.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder) / "a.wav", np.arange(8) / 8, 8000)
    ...     read_pieces(Path(folder) / "a.wav", [1, 6], 3).tolist()
    [[0.125, 0.25, 0.375], [0.75, 0.875, 0.0]]
    """
    result = np.zeros((len(starts), samples), np.float32)
    if any(start < 0 for start in starts) or list(starts) != sorted(starts):
        raise ArgumentError("starts: expected whole numbers of at least 0, in increasing order")
    with _opened(path, damaged) as sound:
        about = sound.about
        for row, first in zip(result, starts, strict=True):
            last = min(first + samples, about.samples)
            if first >= last:
                continue
            if about.format.endswith("OPUS"):  # always decoded from the start of the file
                row[: last - first] = read(path, onset=first / about.rate, offset=last / about.rate, damaged=damaged)
                continue
            if not sound.pieces and (not first or about.format.endswith("VORBIS")):
                sound.file.seek(0)  # `_decoded` may expect the file at its start
            row[: last - first] = np.concatenate(list(sound.blocks(first, last)))
    return result


def stream(
    path: AnyPath,
    *,
    rate: int | None = None,
    block: float = 10.0,
    onset: float = 0.0,
    offset: float | None = None,
    damaged: str = "refuse",
) -> Iterator[Samples]:
    """The samples of `read` in blocks of `block` seconds (the last one shorter), in little memory.

    Damage that only the decoder finds, in flac files, raises its error after the blocks before it.
    """
    if not 0 < block < math.inf:
        raise ArgumentError(f"block: expected a positive number of seconds, got {block}")
    _check_span(onset, offset)
    check_damaged(damaged)
    if rate is not None:
        rate = checked_rate(rate)
    return _stream(path, rate, block, onset, offset, damaged)


def resample(samples: npt.ArrayLike, from_rate: int, to_rate: int) -> Samples:
    """Resample mono samples: (samples,) to (ceil(samples * to_rate / from_rate),).

    >>> len(resample(np.zeros(48000), 48000, 44100))
    44100
    """
    sound = _mono(samples)
    from_rate, to_rate = checked_rate(from_rate), checked_rate(to_rate)
    if from_rate == to_rate:
        return sound
    blocks = (sound[k : k + _BLOCK] for k in range(0, len(sound), _BLOCK))
    return np.concatenate(list(resampled(blocks, from_rate, to_rate, resampled_length(len(sound), from_rate, to_rate))))


def write(path: AnyPath, samples: npt.ArrayLike, rate: int, *, subtype: str | None = None) -> None:
    """Write mono samples (full scale 1, at least one, all finite) to a file atomically, in the format of its suffix.

    `subtype` is an encoding as named by libsndfile, such as "PCM_24" or "FLOAT"; by default PCM_16 for flac and wav.
    Samples beyond full scale are clipped, except in a wav of subtype FLOAT or DOUBLE. The same samples give the same
    bytes in flac, mp3 and integer wav files; ogg and opus files contain a random number, float wavs the time.
    """
    path = Path(path)
    if path.suffix.lower() not in KINDS:
        raise ArgumentError(f"{plain_name(path)}: expected one of the suffixes {', '.join(SUFFIXES)}")
    _, container, usual = KINDS[path.suffix.lower()]
    subtype = subtype or usual
    if not soundfile.check_format(container, subtype):
        known = ", ".join(soundfile.available_subtypes(container))
        raise ArgumentError(f"{path.suffix} files cannot have subtype={subtype!r}. Choose from: {known}")
    sound = _mono(samples)
    if not len(sound):
        raise bad_file(path, "no samples to write")
    rate = checked_rate(rate)
    check_values(path, sound[:, None], 0, rate)
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
        raise ArgumentError(f"{plain_name(path)}: cannot be written at {rate} Hz: {reason_of(error)}") from error
    except OSError as error:
        raise ArgumentError(f"{plain_name(path)}: {error.strerror}") from error


def encode(samples: npt.ArrayLike, rate: int, kind: str) -> bytes:
    """Mono samples as a file in memory, of kind "wav", "flac" or "mp3"; they are clipped to full scale.

    >>> encode(np.zeros(8000), 8000, "wav")[:4]
    b'RIFF'
    """
    _, container, subtype = KINDS[f".{kind}"]
    file = io.BytesIO()
    soundfile.write(file, np.clip(_mono(samples), -1, 1), rate, subtype=subtype, format=container)
    return file.getvalue()


def find(
    folder: AnyPath, *, suffixes: Iterable[str] = SUFFIXES, unreadable: Callable[[Path], object] | None = None
) -> list[Path]:
    """Audio files in a folder and below it, sorted; by suffix, in upper or lower case.

    Hidden files and folders are skipped, links to folders are not followed. `unreadable` is called with each folder
    that cannot be listed and is skipped; without it, such a folder is an error.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise bad_file(folder, "expected a folder, got a file" if folder.exists() else "there is no such folder")

    def skip(error: OSError) -> None:
        if unreadable is None:
            raise bad_file(Path(error.filename), f"cannot be listed: {error.strerror}") from error
        unreadable(Path(error.filename))

    wanted = frozenset(as_names(suffixes))
    files: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=skip):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(place, name) for name in names if not name.startswith("."))
        files += [path for path in paths if path.suffix.lower() in wanted]
    return sorted(files)


def _check_span(onset: float, offset: float | None) -> None:
    if not onset >= 0:
        raise ArgumentError(f"onset: expected at least 0 seconds, got {onset}")
    if offset is not None and not offset > onset:
        raise ArgumentError(f"offset: expected a time after onset, got onset {onset}, offset {offset}")


def _bounds(about: AudioInfo, rate: int, onset: float, offset: float | None) -> tuple[int, int]:
    """First sample between two times and one past the last, at `rate`."""
    last = total = about.samples_at(rate)
    if onset >= about.duration or time_to_sample(onset, rate) >= total:
        raise bad_file(about.path, f"cannot read from {onset} s: it ends at {about.duration:.3f} s")
    if offset is not None and offset < about.duration:
        last = min(total, time_to_sample(offset, rate))
    return time_to_sample(onset, rate), last


def _stream(
    path: AnyPath, rate: int | None, block: float, onset: float, offset: float | None, damaged: str
) -> Iterator[Samples]:
    with _opened(path, damaged) as sound:
        rate = sound.about.rate if rate is None else rate
        size = max(1, math.floor(block * rate + 1e-6))
        kept: list[Samples] = []
        missing = size
        for piece in _excerpt(sound, rate, *_bounds(sound.about, rate, onset, offset)):
            while len(piece) >= missing:
                yield np.concatenate([*kept, piece[:missing]]) if kept else piece[:missing]
                piece = piece[missing:]
                kept = []
                missing = size
            if len(piece):
                kept.append(piece)
                missing -= len(piece)
        if kept:
            yield np.concatenate(kept)


@dataclass(frozen=True)
class _Sound:
    """An open file: read by libsndfile directly, or piece by piece."""

    file: soundfile.SoundFile
    about: AudioInfo
    pieces: tuple[Piece, ...]

    def blocks(self, first: int, last: int) -> Iterator[Samples]:
        """Samples of the file at its rate, with channels averaged; silence between the pieces."""
        if not self.pieces:
            yield from _decoded(self.file, self.about, range(self.about.samples), first, last)
            return
        at = first
        for piece in self.pieces:
            end = min(last, piece.last)
            if end <= at:
                continue
            begin = min(max(at, piece.first), last)
            yield from _silence(begin - at)
            if begin < end:
                entry = piece.entry(begin)
                with (
                    PieceFile(self.about.path, entry.head, entry.begin, piece.end) as raw,
                    ForwardFile(raw) as file,
                ):
                    span = range(entry.first, piece.last)
                    yield from _decoded(file, self.about, span, begin, end, can_seek=piece.can_seek)
            at = end
        yield from _silence(last - at)


def _silence(samples: int) -> Iterator[Samples]:
    for k in range(0, samples, _BLOCK):
        yield np.zeros(min(_BLOCK, samples - k), np.float32)


def _excerpt(sound: _Sound, rate: int, first: int, last: int) -> Iterator[Samples]:
    """Samples `first` to `last`, counted at `rate`, in pieces."""
    about = sound.about
    if rate == about.rate:
        yield from sound.blocks(first, last)
        return
    grid = Grid(about.rate, rate)
    start = grid.start(first)
    lead = min(start, grid.lead)
    end = min(about.samples, resampled_length(last, grid.q, grid.p) + grid.margin)
    skip = first - grid.output(start)
    blocks = sound.blocks(start - lead, end)
    for piece in resampled(blocks, about.rate, rate, last - grid.output(start), lead=lead):
        yield piece[skip:]
        skip = max(0, skip - len(piece))


def _decoded(
    file: soundfile.SoundFile, about: AudioInfo, held: range, first: int, last: int, *, can_seek: bool = True
) -> Iterator[Samples]:
    """Samples `first` to `last` of a recording, from a file that holds the samples `held` of it."""
    at = held.start
    if can_seek and about.format.endswith("VORBIS"):
        at = max(at, min(first, held.stop - _OGG_PAGE))  # libsndfile seeks wrongly in the last page
    elif can_seek and not about.format.endswith("OPUS"):  # which depends on what came before, for seconds after a seek
        at = first
    if at > held.start:
        file.seek(at - held.start)
    while at < last:
        count = min(last - at, max(1, _BLOCK // about.channels))
        block = file.read(count, dtype="float32", always_2d=True)
        if not len(block):
            contents = examine(about.path, with_flac=True)
            if contents.gaps and not about.gaps:
                raise _damage(about.path, contents)
            raise bad_file(about.path, f"truncated: ends at {at / about.rate:.3f} s of {about.duration:.3f} s")
        check_values(about.path, block, at, about.rate)
        at += len(block)
        if at > first:
            yield averaged(block[-(at - first) :])


@contextmanager
def _opened(path: AnyPath, damaged: str) -> Iterator[_Sound]:
    """Open a file whose sound is intact, or with "keep" what is intact; decoding errors become `DataError`."""
    path, keep = Path(path), check_damaged(damaged) == "keep"
    contents = examine(path, with_flac=keep)
    if contents.gaps and not keep:
        raise _damage(path, contents)
    if any(gap.offset is not None and gap.offset - gap.onset > _LONGEST_GAP for gap in contents.gaps):
        raise bad_file(path, f"damaged: {describe_gaps(contents.gaps)}; gaps of more than a day are not filled")
    try:
        with ExitStack() as stack:
            source: str | bytes | PieceFile = native_name(path)
            if contents.gaps:
                entry = contents.pieces[0].entries[0]
                source = stack.enter_context(PieceFile(path, entry.head, entry.begin, contents.pieces[0].end))
            elif contents.head or (path.suffix.lower() == ".mp3" and path.stat().st_size > contents.pieces[-1].end):
                # with a corrected header, and without anything behind the sound: libmpg123 prints notes about both
                head = contents.head
                source = stack.enter_context(PieceFile(path, head, len(head), contents.pieces[-1].end))
            file = stack.enter_context(ForwardFile(source))
            yield _Sound(file, _about(path, file, contents), contents.pieces)
    except soundfile.SoundFileError as error:
        contents = examine(path, with_flac=True)
        if contents.gaps and not keep:
            raise _damage(path, contents) from error
        raise bad_file(path, f"damaged, truncated or without samples: {reason_of(error)}") from error


def _about(path: Path, file: soundfile.SoundFile, contents: Contents) -> AudioInfo:
    samples = file.frames if contents.samples is None else contents.samples
    rate = file.samplerate
    if samples > 1 << 48:
        raise bad_file(path, "its header does not state its length; re-encode it, for example with flac")
    if not samples:
        raise bad_file(path, "contains no samples")
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise bad_file(path, f"its header is damaged: it states a rate of {rate} Hz")
    kind = f"{file.format} {file.subtype}"
    return AudioInfo(path, rate, file.channels, samples / rate, samples, kind, contents.gaps)


def _damage(path: Path, contents: Contents) -> DataError:
    return bad_file(path, f"damaged: {describe_gaps(contents.gaps)}{KEEP_HINT}")


def describe_gaps(gaps: Sequence[Gap]) -> str:
    """The first gap, and how many there are.

    >>> describe_gaps([Gap(19, 20.02, "truncated"), Gap(25, None, "truncated")])
    'audio is missing from 19.00 s to 20.02 s (2 gaps in all)'
    """
    onset, offset, _ = gaps[0]
    until = "its end" if offset is None else f"{offset:.2f} s"
    return f"audio is missing from {onset:.2f} s to {until}" + (f" ({len(gaps)} gaps in all)" if len(gaps) > 1 else "")


def check_damaged(damaged: str) -> str:
    """Return the setting for damaged files if it is valid."""
    if damaged not in DAMAGED:
        raise unknown_name("damaged", damaged, DAMAGED)
    return damaged


def checked_rate(rate: int) -> int:
    """Return the rate if it is valid."""
    if not (_LOWEST_RATE <= rate <= _HIGHEST_RATE and rate == int(rate)):
        raise ArgumentError(f"rate: expected an integer from {_LOWEST_RATE} to {_HIGHEST_RATE} Hz, got {rate}")
    return int(rate)


def check_values(path: Path, block: Samples, first: int, rate: int) -> None:
    """Reject NaN and values far beyond full scale in (samples, channels); `first` is the number of the first sample."""
    # max and min propagate NaN, which fails every comparison
    if not max(block.max(), -block.min()) <= _LOUDEST:
        bad = ~(np.abs(block) <= _LOUDEST).all(axis=1)
        where = int(bad.argmax())
        value = block[where][~(np.abs(block[where]) <= _LOUDEST)][0]
        raise bad_file(path, f"sample {first + where} (at {(first + where) / rate:.3f} s) is {value}, full scale is 1")


def averaged(block: Samples) -> Samples:
    """Mean over channels: (samples, channels) to (samples,)."""
    mono = block[:, 0]
    if block.shape[1] > 1:
        for channel in block.T[1:]:  # faster than mean(axis=1) for a short axis
            mono = np.add(mono, channel)
        mono /= np.float32(block.shape[1])
    return mono


def _mono(samples: npt.ArrayLike) -> Samples:
    given = np.asarray(samples)
    if given.ndim != 1:
        raise ArgumentError(f"expected mono samples of shape (samples,), got {given.shape}")
    if given.dtype.kind in "biu":  # nearly all values would be beyond full scale
        raise ArgumentError(
            f"expected floating-point samples with full scale 1, got {given.dtype}; divide them by their full scale: "
            "samples / 32768 for int16"
        )
    return given.astype(np.float32, copy=False)
