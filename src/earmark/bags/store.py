"""Features of clips on disk, memory-mapped.

A store is a folder:

    store.json      settings: features, variants, number type
    features.bin    frames of all clips, appended one after another: (frames, bands)
    index.jsonl     a line per clip: where its frames are and which files they were computed from
    skipped.tsv     clips that could not be read, and why

A clip's frames are written before its line, so a process killed at any moment leaves complete entries and at most an
incomplete tail, which the next build removes. A build computes what is missing or whose files have changed, and refuses
a store with other settings. float16 is within 0.03 dB for values down to -80 dB at half the size of float32.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from platformdirs import user_cache_path

from earmark import audio
from earmark.datasets import Clip
from earmark.effects import compress
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.features import FeatureConfig, LogMel
from earmark.files import json_text, locked, make_folder, named_errors, written_whole
from earmark.ownership import owned
from earmark.parallel import WeightedSemaphore, parallel_map, worker_count
from earmark.progress import OnProgress, Progress, ignore_progress

_VERSION = 2
_FLUSH_EVERY = 64
_SECONDS_IN_MEMORY = 3600  # of sound, over all threads
_DTYPES = {"float16": np.float16, "float32": np.float32}

Array = npt.NDArray[Any]
Stamp = tuple[str, int, int]
"""Name, size and modification time (ns) of a file."""


@dataclass(frozen=True)
class Entry:
    """Location of a clip's frames: `variants` blocks of `frames` rows each, the first at row `start`."""

    start: int
    frames: int
    samples: int  # at the features' sampling rate
    sources: tuple[Stamp, ...]  # the clip's files as they were when the features were computed


class FeatureStore:
    """Features of clips in a folder, read-only; created by `build_store`.

    Variants of a clip are `semitones`, of which the first is 0, the unchanged clip, then presets of `compression`.
    `skipped` has the reasons, by file name, for clips that could not be read.
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
        """Names of the clips in the store."""
        return tuple(self._entries)

    def entry(self, filename: str) -> Entry:
        """Location of a clip's frames."""
        if filename not in self._entries:
            why = self.skipped.get(filename, "the store was built without this clip")
            raise DataError(f"{filename}: no features in {self.path}: {why}")
        return self._entries[filename]

    def __getitem__(self, filename: str) -> Array:
        """Features of a clip: (variants, frames, bands), memory-mapped."""
        entry, variants = self.entry(filename), self.variants
        return self.rows[entry.start : entry.start + variants * entry.frames].reshape(variants, entry.frames, -1)


def default_cache(data: str) -> Path:
    """The folder for features of a data set, a path or "NAME:PATH": in the user's cache, or below EARMARK_CACHE."""
    name, colon, path = data.partition(":")
    place = str(Path(path if colon and len(name) > 1 else data).resolve())
    base = os.environ.get("EARMARK_CACHE")
    cache = Path(base, "earmark") if base else user_cache_path("earmark")
    digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:12]  # a path may be any bytes
    return cache / "features" / f"{Path(place).stem}-{digest}"


def build_store(
    path: str | Path,
    clips: Sequence[Clip],
    config: FeatureConfig,
    *,
    semitones: Sequence[float] = (),
    compression: Sequence[str] = (),
    dtype: str = "float16",
    workers: int | None = None,
    on_progress: OnProgress | None = None,
) -> FeatureStore:
    """Compute missing features and open the store.

    A clip that cannot be read is skipped: the store's `skipped` has the reason, and the next call tries again. Clips
    are read whole by threads, at most an hour of sound at a time, or a single longer clip.

    In addition to the unchanged clip, pitch variants are computed for `semitones`, (-2, -1, 1, 2) for the paper's
    five-fold set, and variants with compressed dynamic range for `compression`, presets in `earmark.effects.PRESETS`.
    """
    if dtype not in _DTYPES:
        raise unknown_name("dtype", dtype, _DTYPES)
    folder = make_folder(Path(path))
    settings = {
        "version": _VERSION,
        "features": config.to_dict(),
        "semitones": [0.0, *(float(s) for s in semitones)],
        "compression": list(compression),
        "dtype": dtype,
    }
    with locked(folder, wait=True), owned(folder):
        _check_settings(folder, settings)
        _fill(folder, clips, config, settings, worker_count(workers), on_progress or ignore_progress)
    return FeatureStore(folder)


def _check_settings(folder: Path, settings: dict[str, Any]) -> None:
    """Write the settings of a new store; refuse a store with other settings."""
    if not (folder / "store.json").exists():
        with written_whole(folder / "store.json") as draft:
            draft.write_text(json_text(settings, indent=1))
        return
    old, new = ({**each["features"], **each, "features": None} for each in (_read_settings(folder), settings))
    differing = [f"{key} {old.get(key)} (now {value})" for key, value in new.items() if old.get(key) != value]
    if differing:
        raise ArgumentError(
            f"{folder} holds features with other settings: {', '.join(differing)}; choose another folder or delete it"
        )


def _fill(
    folder: Path,
    clips: Sequence[Clip],
    config: FeatureConfig,
    settings: dict[str, Any],
    workers: int,
    on_progress: OnProgress,
) -> None:
    """Compute and append the features of clips that are missing or have changed."""
    variants = len(settings["semitones"]) + len(settings["compression"])
    dtype = np.dtype(_DTYPES[settings["dtype"]])
    row_bytes = config.n_bands * dtype.itemsize
    entries = dict(_read_index(folder, row_bytes, variants))
    missing = [clip for clip in clips if clip.filename not in entries or _is_changed(clip, entries[clip.filename])]
    skipped: dict[str, str] = {}
    log_mel = LogMel(config)
    memory = WeightedSemaphore(_SECONDS_IN_MEMORY)

    def compute(clip: Clip) -> tuple[Array, int, tuple[Stamp, ...]]:
        stamps = _stamps(clip)  # before reading: a file that changes meanwhile is read again next time
        seconds = sum(audio.info(source.path).duration for source in clip.sources)
        with memory.acquire(math.ceil(seconds)), torch.inference_mode():
            samples = clip.read(config.rate)
            x = _variants(log_mel, samples, settings)
            rows = x.transpose(1, 2).numpy().astype(dtype).reshape(-1, config.n_bands)
            return rows, len(samples), stamps

    end = max((e.start + e.frames * variants for e in entries.values()), default=0)
    total, done = len(clips), len(clips) - len(missing)
    on_progress(Progress("features", done, total, "clips"))
    with (
        _appending(folder, end * row_bytes) as append,
        closing(parallel_map(compute, missing, workers=workers, limit=4 * workers)) as results,
    ):
        for clip, result in results:
            if isinstance(result, DataError):
                skipped[clip.filename] = str(result)
            elif isinstance(result, Exception):
                raise result
            else:
                rows, samples, stamps = result
                place = {"filename": clip.filename, "start": end, "frames": len(rows) // variants}
                append(rows, {**place, "samples": samples, "sources": stamps})
                end += len(rows)
            done += 1
            on_progress(Progress("features", done, total, "clips"))
    with written_whole(folder / "skipped.tsv") as draft:
        draft.write_text("".join(f"{json.dumps(name)}\t{json.dumps(why)}\n" for name, why in skipped.items()))


def _variants(log_mel: LogMel, samples: npt.NDArray[np.float32], settings: dict[str, Any]) -> torch.Tensor:
    """Features of a clip at each pitch, then with each compression: (variants, bands, frames)."""
    sound = torch.from_numpy(samples)[None]
    pitches = log_mel(sound, semitones=settings["semitones"])[0] if len(settings["semitones"]) > 1 else log_mel(sound)
    compressed = [compress(samples, log_mel.config.rate, preset) for preset in settings["compression"]]
    return torch.cat([pitches, *(log_mel(torch.from_numpy(x)[None]) for x in compressed)])


@contextmanager
def _appending(folder: Path, end: int) -> Iterator[Callable[[Array, dict[str, Any]], None]]:
    """Yields a function that appends frames and their index line; frames reach the disk before their lines."""
    lines: list[str] = []
    with (
        named_errors(folder / "features.bin"),
        open(folder / "features.bin", "ab") as data,
        open(folder / "index.jsonl", "ab") as index,
    ):
        data.truncate(end)
        index.truncate((folder / "index.jsonl").read_bytes().rfind(b"\n") + 1)  # without an incomplete last line

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


def _is_changed(clip: Clip, entry: Entry) -> bool:
    """Whether a clip's files have changed since its features were computed; missing files count as unchanged."""
    try:
        return _stamps(clip) != entry.sources
    except DataError:
        return False


def _stamps(clip: Clip) -> tuple[Stamp, ...]:
    paths = [source.path for source in clip.sources]
    try:
        return tuple((path.name, (status := path.stat()).st_size, status.st_mtime_ns) for path in paths)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error


def _read_settings(folder: Path) -> dict[str, Any]:
    path = folder / "store.json"
    try:
        settings = json.loads(path.read_text())
        version = int(settings["version"])
    except FileNotFoundError:
        raise DataError(f"{folder} is not a feature store: it has no store.json") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot read the settings of this feature store: {error}") from error
    if version != _VERSION:
        raise DataError(f"{path}: expected version {_VERSION}, got {version}; delete {folder} or choose another folder")
    assert isinstance(settings, dict)
    return settings


def _read_index(folder: Path, row_bytes: int, variants: int) -> Iterator[tuple[str, Entry]]:
    """Clip names and entries whose frames are complete; of several entries for a clip the last one counts."""
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
            raise DataError(f"{path}:{number}: this entry is damaged; delete {folder} to build it again") from error
        if (entry.start + entry.frames * variants) * row_bytes <= size:
            yield name, entry


def _read_skipped(folder: Path) -> dict[str, str]:
    path = folder / "skipped.tsv"
    if not path.exists():
        return {}
    pairs = (line.split("\t") for line in path.read_text().splitlines())
    return {json.loads(name): json.loads(why) for name, why in pairs}
