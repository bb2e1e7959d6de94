"""Features of clips, kept on disk and mapped into memory.

A store is a folder:

    store.json      the settings: how features were made, which variants, which number type
    features.bin    frames of all clips, one after another: (frames, bands), appended to
    index.jsonl     a line per clip: where its frames are and which files they came from
    skipped.tsv     clips that could not be read, and why

A clip's frames are written first and its line after them, so that a process killed at any moment leaves whole entries
and, at worst, a tail that the next run cuts off. The next run does what is missing, and does again clips whose files
changed. Other settings than the store's are refused, never mixed. A store that an older earmark made in another way is
made anew.

Frames lie with time outermost, so that a patch cut from a clip is one stretch of the file. They are kept as float16,
which is within 0.03 dB for values down to -80 dB, at half the size; `dtype="float32"` keeps every bit.
"""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch

from earmark import audio
from earmark.datasets import Clip
from earmark.effects import compress
from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig, LogMel
from earmark.files import json_text, make_folder, written_whole
from earmark.workers import cores

__all__ = ["Entry", "FeatureStore", "build_store"]

_VERSION = 2  # 2: entries know the samples of their clip
_FLUSH_EVERY = 64
_AT_ONCE = 3600  # seconds of sound that are in memory together, however many threads there are
_DTYPES = {"float16": np.float16, "float32": np.float32}

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Entry:
    """Where the frames of a clip are: `variants` blocks of `frames` rows each, the first at row `start`."""

    start: int
    frames: int
    samples: int
    """Of the sound, at the features' rate."""
    sources: tuple[tuple[str, int, int], ...]
    """Name, size and time of change (ns) of each file that the clip was made of."""


class FeatureStore:
    """Features of clips, read only; `build_store` makes one.

    Parameters
    ----------
    path
        The folder.

    Attributes
    ----------
    config
        How the features were made.
    semitones
        The pitch variants kept of every clip, the first being 0: the clip as it is.
    compression
        Presets of the variants with compressed dynamic range, which follow the pitch variants.
    skipped
        Reasons, by file name, for clips that could not be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        settings = _read_settings(self.path)
        self.config = FeatureConfig.from_dict(settings["features"])
        self.semitones: tuple[float, ...] = tuple(settings["semitones"])
        self.compression: tuple[str, ...] = tuple(settings.get("compression", ()))
        self.variants = len(self.semitones) + len(self.compression)
        self.dtype = np.dtype(_DTYPES[settings["dtype"]])
        self._entries = dict(_read_index(self.path, self.config.n_bands * self.dtype.itemsize, self.variants))
        self.skipped = _read_skipped(self.path)
        rows = max((e.start + e.frames * self.variants for e in self._entries.values()), default=0)
        self.rows: Array = (
            np.memmap(self.path / "features.bin", self.dtype, "r", shape=(rows, self.config.n_bands))
            if rows
            else np.empty((0, self.config.n_bands), self.dtype)
        )

    def __repr__(self) -> str:
        return f"<FeatureStore: {len(self)} clips, {self.rows.nbytes / 2**20:.0f} MiB at {self.path}>"

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, filename: object) -> bool:
        return filename in self._entries

    @property
    def filenames(self) -> tuple[str, ...]:
        """Clips that are there."""
        return tuple(self._entries)

    def entry(self, filename: str) -> Entry:
        """Where a clip is."""
        if filename not in self._entries:
            why = self.skipped.get(filename, "it was not among the clips the store was built from")
            raise DataError(f"{filename}: no features in {self.path}: {why}")
        return self._entries[filename]

    def __getitem__(self, filename: str) -> Array:
        """Features of a clip: (variants, frames, bands), mapped, not read until used."""
        entry, variants = self.entry(filename), self.variants
        return self.rows[entry.start : entry.start + variants * entry.frames].reshape(variants, entry.frames, -1)


def build_store(
    path: str | Path,
    clips: Sequence[Clip],
    config: FeatureConfig,
    *,
    semitones: Sequence[float] = (),
    compression: Sequence[str] = (),
    dtype: str = "float16",
    workers: int | None = None,
    progress: Progress | None = None,
) -> FeatureStore:
    """Compute what is missing and open the store.

    A clip that cannot be read is listed in the store's `skipped` with the reason, and tried again next time; the rest
    goes on. Threads do the work: decoding, resampling and transforming all leave Python's lock alone. Clips are
    read whole, but no more at once than an hour of sound, or one that is longer.

    Parameters
    ----------
    semitones
        Pitch variants to keep beside the clip as it is: (-2, -1, 1, 2) for the paper's five-fold set.
    compression
        Variants with compressed dynamic range to keep as well, by names of presets in `earmark.effects.PRESETS`.
    dtype
        "float16" or "float32".
    workers
        Threads; by default one per core.
    progress
        Called with the clips done and the clips in all.
    """
    if dtype not in _DTYPES:
        raise ArgumentError(f"dtype={dtype!r} is not known. Choose from: {', '.join(_DTYPES)}")
    folder = make_folder(Path(path))
    settings = {
        "version": _VERSION,
        "features": config.to_dict(),
        "semitones": [0.0, *(float(s) for s in semitones)],
        "compression": list(compression),
        "dtype": dtype,
    }
    with _locked(folder):
        _settle(folder, settings)
        _fill(folder, clips, config, settings, workers or cores(), progress or (lambda done, total: None))
    return FeatureStore(folder)


def _settle(folder: Path, settings: dict[str, Any]) -> None:
    """Make the store's settings these, or refuse if it has others; empty a store of an older version."""
    is_new = not (folder / "store.json").exists()
    kept = settings if is_new else {"compression": [], **_read_settings(folder, or_older=True)}
    if kept["version"] < _VERSION:
        for name in ("index.jsonl", "features.bin", "skipped.tsv"):
            (folder / name).unlink(missing_ok=True)
    if is_new or kept["version"] < _VERSION:
        with written_whole(folder / "store.json") as draft:
            draft.write_text(json_text(settings, indent=1))
        return
    flat = [{**s["features"], **{k: v for k, v in s.items() if k != "features"}} for s in (kept, settings)]
    differing = [
        f"{key} {flat[0].get(key)} (now {flat[1].get(key)})" for key in flat[1] if flat[0].get(key) != flat[1][key]
    ]
    if differing:
        raise ArgumentError(
            f"{folder} holds features made otherwise: {', '.join(differing)}; choose another folder or delete this one"
        )


def _fill(
    folder: Path,
    clips: Sequence[Clip],
    config: FeatureConfig,
    settings: dict[str, Any],
    workers: int,
    progress: Progress,
) -> None:
    variants = len(settings["semitones"]) + len(settings["compression"])
    number = np.dtype(_DTYPES[settings["dtype"]])
    row_bytes = config.n_bands * number.itemsize
    entries = dict(_read_index(folder, row_bytes, variants))
    todo = [clip for clip in clips if clip.filename not in entries or _is_changed(clip, entries[clip.filename])]
    skipped: dict[str, str] = {}
    log_mel = LogMel(config)
    room = _Room(_AT_ONCE)

    def work(clip: Clip) -> tuple[Array, int, tuple[tuple[str, int, int], ...]]:
        stamps = _stamps(clip)  # before reading: a file that changes meanwhile is done again next time
        seconds = sum(audio.info(source.path).duration for source in clip.sources)
        with room.taken(math.ceil(seconds)), torch.inference_mode():
            samples = clip.read(config.rate)
            x = _variants(log_mel, samples, settings)
            return x.transpose(1, 2).numpy().astype(number).reshape(-1, config.n_bands), len(samples), stamps

    end = max((e.start + e.frames * variants for e in entries.values()), default=0)
    total, done = len(clips), len(clips) - len(todo)
    progress(done, total)
    with _appending(folder, end * row_bytes) as append, _one_torch_thread(), ThreadPoolExecutor(workers) as pool:
        for clip, result in _in_turn(pool, work, todo, ahead=4 * workers):
            try:
                rows, samples, stamps = result()
            except DataError as error:
                skipped[clip.filename] = str(error)
            else:
                place = {"filename": clip.filename, "start": end, "frames": len(rows) // variants}
                append(rows, {**place, "samples": samples, "sources": stamps})
                end += len(rows)
            done += 1
            progress(done, total)
    with written_whole(folder / "skipped.tsv") as draft:
        draft.write_text("".join(f"{json.dumps(name)}\t{json.dumps(why)}\n" for name, why in skipped.items()))


def _variants(log_mel: LogMel, samples: npt.NDArray[np.float32], settings: dict[str, Any]) -> torch.Tensor:
    """Features of a clip at each pitch, then with each compression: (variants, bands, frames)."""
    sound = torch.from_numpy(samples)[None]
    pitches = log_mel(sound, semitones=settings["semitones"])[0] if len(settings["semitones"]) > 1 else log_mel(sound)
    compressed = [compress(samples, log_mel.config.rate, preset) for preset in settings["compression"]]
    return torch.cat([pitches, *(log_mel(torch.from_numpy(own)[None]) for own in compressed)])


def _in_turn(
    pool: ThreadPoolExecutor, work: Callable[[Clip], Any], clips: Sequence[Clip], ahead: int
) -> Iterator[tuple[Clip, Callable[[], Any]]]:
    """Clips and their results as they come, with a bounded number under way."""
    waiting = iter(clips)
    running: dict[Future[Any], Clip] = {}
    try:
        while True:
            while len(running) < ahead and (clip := next(waiting, None)) is not None:
                running[pool.submit(work, clip)] = clip
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result
    finally:
        for future in running:
            future.cancel()


class _Room:
    """Room for so much, shared by threads; what needs more than all of it is let in alone."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, amount: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + amount <= self._size)
            self._used += amount
        try:
            yield
        finally:
            with self._changed:
                self._used -= amount
                self._changed.notify_all()


@contextmanager
def _appending(folder: Path, end: int) -> Iterator[Callable[[Array, dict[str, Any]], None]]:
    """A function that appends frames and their line; lines reach the disk only after the frames they speak of."""
    lines: list[str] = []
    with open(folder / "features.bin", "ab") as data, open(folder / "index.jsonl", "ab") as index:
        data.truncate(end)
        _mend_last_line(index, folder / "index.jsonl")

        def flush() -> None:
            data.flush()
            os.fsync(data.fileno())
            index.write("".join(lines).encode())
            index.flush()
            lines.clear()

        def append(rows: Array, line: dict[str, Any]) -> None:
            data.write(rows.tobytes())
            lines.append(json_text(line) + "\n")
            if len(lines) >= _FLUSH_EVERY:
                flush()

        try:
            yield append
        finally:
            flush()


def _mend_last_line(index: BinaryIO, path: Path) -> None:
    """Cut off a line that a killed process left unfinished."""
    text = path.read_bytes()
    index.truncate(text.rfind(b"\n") + 1)


def _is_changed(clip: Clip, entry: Entry) -> bool:
    """Whether a clip's files are others than those its features were made of; files that are gone have not changed."""
    try:
        return _stamps(clip) != entry.sources
    except DataError:
        return False


def _stamps(clip: Clip) -> tuple[tuple[str, int, int], ...]:
    """What tells whether a clip's files are still the same."""
    stamps = []
    for source in clip.sources:
        try:
            status = source.path.stat()
        except OSError as error:
            raise DataError(f"{source.path}: {error.strerror}") from error
        stamps.append((source.path.name, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def _read_settings(folder: Path, *, or_older: bool = False) -> dict[str, Any]:
    path = folder / "store.json"
    try:
        settings = json.loads(path.read_text())
        version = int(settings["version"])
    except FileNotFoundError:
        raise DataError(f"{folder} is not a feature store: it has no store.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not the settings of a feature store: {error}") from error
    if version > _VERSION:
        raise DataError(f"{path}: version {version} of the store is not known to this earmark, which writes {_VERSION}")
    if version < _VERSION and not or_older:
        raise DataError(f"{path}: version {version} of the store is of an older earmark; build it anew by build_store")
    assert isinstance(settings, dict)
    return settings


def _read_index(folder: Path, row_bytes: int, variants: int) -> Iterator[tuple[str, Entry]]:
    """Entries whose frames are there; a later line about the same clip replaces an earlier one."""
    path = folder / "index.jsonl"
    if not path.exists():
        return
    size = (folder / "features.bin").stat().st_size
    whole = path.read_bytes()
    for number, text in enumerate(whole[: whole.rfind(b"\n") + 1].splitlines(), 1):
        try:
            line = json.loads(text)
            sources = tuple((str(p), int(s), int(t)) for p, s, t in line["sources"])
            entry = Entry(int(line["start"]), int(line["frames"]), int(line["samples"]), sources)
            name = str(line["filename"])
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path}:{number}: not an entry of a feature store; delete {folder} and build it anew"
            ) from error
        if (entry.start + entry.frames * variants) * row_bytes <= size:
            yield name, entry


def _read_skipped(folder: Path) -> dict[str, str]:
    path = folder / "skipped.tsv"
    if not path.exists():
        return {}
    pairs = (line.split("\t") for line in path.read_text().splitlines())
    return {json.loads(name): json.loads(why) for name, why in pairs}


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Only one process builds a store; another waits. Where the system has no such locks, nobody waits."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def _one_torch_thread() -> Iterator[None]:
    """Clips are worked on in parallel, so each by one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
