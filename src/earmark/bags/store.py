"""Features of clips on disk. `earmark.bags.index` describes the files of a store.

A clip's frames are on the disk before its line is written, so a process killed at any moment, or a power cut, leaves
complete entries and at most an incomplete tail, which the next build removes. A build computes what is missing, what
was damaged on the disk, and what has changed files, and rejects a store with other settings. float16 is within 0.03 dB
for values down to -80 dB at half the size of float32.
"""

import hashlib
import json
import math
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from earmark import audio
from earmark.bags.index import (
    VERSION,
    Location,
    PitchShift,
    Stamp,
    StoreSettings,
    read_index,
    read_settings,
    read_skipped,
)
from earmark.bags.sources import SharedSources
from earmark.datasets import Clip
from earmark.effects import change_pitch_and_time, compress
from earmark.encoders import FileEncoder
from earmark.encoders.features import Features, front_end, stored_encoder
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.files import cache_folder, json_text, locked, make_folder, named_errors
from earmark.formats.text import write_text
from earmark.ownership import owned
from earmark.parallel import WeightedSemaphore, parallel_map, worker_count
from earmark.platforms import flush, refuse_link, sync
from earmark.progress import OnProgress, Progress, ignore_progress
from earmark.schema import differences
from earmark.text import first_few

_FLUSH_EVERY = 64
_SECONDS_IN_MEMORY = 3600  # of sound, over all threads; and as much that later mixtures need again
_DTYPES = ("float16", "float32")

Array = npt.NDArray[Any]


class FeatureStore:
    """Features of clips in a folder, read-only; created by `build_store`.

    Variants of a clip are `semitones`, of which the first is 0, the unchanged clip, then presets of `compression`.
    `skipped` has the reasons, by file name, for clips that could not be read; `repaired` the names of clips that the
    build found damaged and recomputed. Frames whose checksum is not that of what was written are a DataError.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        settings = read_settings(self.path)
        self.config = settings.features
        self.semitones = settings.semitones
        self.compression = settings.compression
        self.variants = settings.variants
        self.dtype = np.dtype(settings.dtype)
        self.skipped = read_skipped(self.path)
        self.repaired: tuple[str, ...] = ()
        self._entries = read_index(self.path, settings)
        self._row_bytes = settings.row_bytes
        self._verified: set[str] = set()
        self._lock = threading.Lock()
        # read rather than mapped into memory: the process would crash if another one truncated a mapped file
        self._file = FileIO(self.path / "features.bin") if self._entries else None

    def __repr__(self) -> str:
        return f"<FeatureStore: {len(self)} clips, {self.nbytes / 2**20:.0f} MiB at {self.path}>"

    def __del__(self) -> None:
        if (file := getattr(self, "_file", None)) is not None:
            file.close()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, filename: object) -> bool:
        return filename in self._entries

    @property
    def nbytes(self) -> int:
        """Size of all features."""
        return sum(entry.frames for entry in self._entries.values()) * self.variants * self._row_bytes

    @property
    def filenames(self) -> tuple[str, ...]:
        """Names of the clips in the store."""
        return tuple(self._entries)

    def entry(self, filename: str) -> Location:
        """Location of a clip's frames."""
        if filename not in self._entries:
            why = self.skipped.get(filename, "the store was built without this clip")
            raise DataError(f"{filename}: no features in {self.path}: {why}")
        return self._entries[filename]

    def __getitem__(self, filename: str) -> Array:
        """Features of a clip, compared with their checksum: (variants, frames, bands)."""
        entry = self.entry(filename)
        x = np.empty((self.variants, entry.frames, self.config.n_bands), self.dtype)
        self._read_rows(filename, entry.start, x)
        if zlib.crc32(x.data) != entry.crc32:
            raise self._damaged(filename, "do not match their checksum")
        self._verified.add(filename)
        return x

    def read_frames(self, filename: str, variant: int, first: int, out: Array) -> None:
        """Read consecutive frames of a variant of a clip into `out`: (frames, bands), contiguous.

        The whole clip is compared with its checksum the first time.
        """
        if filename not in self._verified:
            self[filename]
        entry = self._entries[filename]
        self._read_rows(filename, entry.start + variant * entry.frames + first, out)

    def damaged(self, filenames: Iterable[str], workers: int) -> list[str]:
        """Names of clips whose frames do not match their checksum; `read_frames` does not check the others again."""
        names = [name for name in filenames if name in self._entries]
        damaged = []
        with closing(parallel_map(self.__getitem__, names, workers=workers)) as results:
            for name, result in results:
                if isinstance(result, DataError):
                    damaged.append(name)
                elif isinstance(result, Exception):
                    raise result
        return damaged

    def leave_out(self, filenames: Iterable[str]) -> None:
        """Forget some clips, as if the store had been built without them."""
        for name in list(filenames):
            del self._entries[name]

    def _read_rows(self, filename: str, start: int, out: Array) -> None:
        assert self._file is not None
        view = out.data.cast("B")
        try:
            with self._lock:
                self._file.seek(start * self._row_bytes)
                done = self._file.readinto(view)
                while 0 < done < len(view):
                    more = self._file.readinto(view[done:])
                    done = done + more if more else 0
        except OSError as error:
            raise self._damaged(filename, f"cannot be read: {error.strerror}") from error
        if done < len(view):
            raise self._damaged(filename, "end too early")

    def _damaged(self, filename: str, how: str) -> DataError:
        return DataError(
            f"{self.path}: features of {filename} {how}: the file was damaged or changed; train again to recompute them"
        )


def default_cache(data: str) -> Path:
    """The folder for features of a data set, a path or "NAME:PATH": in the user's cache, or below EARMARK_CACHE."""
    name, colon, path = data.partition(":")
    place = str(Path(path if colon and len(name) > 1 else data).resolve())
    digest = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:12]  # a path may be any bytes
    return cache_folder() / "features" / f"{Path(place).stem}-{digest}"


def build_store(
    path: str | Path,
    clips: Sequence[Clip],
    config: Features,
    *,
    semitones: Sequence[float] = (),
    compression: Sequence[str] = (),
    pitch_shift: PitchShift = "filters",
    dtype: str = "float16",
    workers: int | None = None,
    device: torch.device | None = None,
    on_progress: OnProgress = ignore_progress,
) -> FeatureStore:
    """Compute missing features and open the store.

    A clip that cannot be read is skipped: the store's `skipped` has the reason, and the next call tries again. Clips
    are read whole by threads, at most an hour of sound at a time, or a single longer clip. Features that are already
    there are verified; the store's `repaired` names the clips whose features were damaged and recomputed.

    In addition to the unchanged clip, pitch variants are computed for `semitones`, (-2, -1, 1, 2) for the paper's
    five-fold set, and variants with compressed dynamic range for `compression`, presets in `earmark.effects.PRESETS`.
    With `pitch_shift="sound"`, pitch variants are the features of shifted sound, as in the paper, instead of those of
    shifted mel filters; that takes much longer, and also works for encoders.

    Features are computed on `device`, by default the CPU; those of a GPU are the same up to rounding.
    """
    if dtype not in _DTYPES:
        raise unknown_name("dtype", dtype, _DTYPES)
    folder, workers = make_folder(Path(path)), worker_count(workers)
    pitches = (0.0, *(float(s) for s in semitones))
    settings = StoreSettings(VERSION, config, dtype, pitches, tuple(compression), pitch_shift)  # type: ignore[arg-type]

    def filled(stale: Mapping[str, Location]) -> FeatureStore:
        with locked(folder, wait=True), owned(folder):
            _check_settings(folder, settings)
            _fill(folder, clips, settings, stale, workers, device, on_progress)
        return FeatureStore(folder)

    store = filled({})
    damaged = store.damaged([clip.filename for clip in clips], workers)
    if damaged:
        stale = {name: store.entry(name) for name in damaged}
        store = filled(stale)
        store.leave_out(name for name in damaged if store.entry(name) == stale[name])  # their recordings are missing
        store.repaired = tuple(name for name in damaged if name in store)
    return store


def _check_settings(folder: Path, settings: StoreSettings) -> None:
    """Write the settings of a new store; reject a store with other settings."""
    if not (folder / "store.json").exists():
        write_text(folder / "store.json", json_text(settings.to_dict(), indent=1))
        return
    changed = differences(read_settings(folder).to_dict(), settings.to_dict())
    if changed:
        listed = first_few([f"{name} {old} (now {new})" for name, (old, new) in changed.items()])
        raise ArgumentError(
            f"{folder} contains features with other settings: {listed}; choose another folder or delete it"
        )


def _fill(
    folder: Path,
    clips: Sequence[Clip],
    settings: StoreSettings,
    stale: Mapping[str, Location],
    workers: int,
    device: torch.device | None,
    on_progress: OnProgress,
) -> None:
    """Compute and append the features of clips that are missing, have changed, or still are as in `stale`."""
    config, variants, dtype = settings.features, settings.variants, np.dtype(settings.dtype)
    stored = stored_encoder(config)
    if stored is not None and not (variants == 1 and all(clip.is_file for clip in clips)):
        raise ArgumentError(
            "embeddings computed elsewhere exist for unchanged files only; expected no excerpts of "
            "recordings, mixtures, pitch shifts or compression"
        )
    entries = read_index(folder, settings)
    missing = [clip for clip in clips if _is_due(clip, entries.get(clip.filename), stale, stored)]
    skipped: dict[str, str] = {}
    transform = front_end(config).to(device) if missing and stored is None else None  # an encoder loads its weights
    memory = WeightedSemaphore(_SECONDS_IN_MEMORY)
    sounds = SharedSources(missing, config.rate, _SECONDS_IN_MEMORY)

    def compute(clip: Clip) -> tuple[Array, int, tuple[Stamp, ...]]:
        stamps = _stamps(clip, stored)  # before reading: a file that changes meanwhile is read again next time
        seconds = sum(source.duration for source in clip.sources)
        with memory.acquire(math.ceil(seconds)), torch.inference_mode():
            if stored is not None:
                return *_stored_rows(stored, clip, dtype), stamps
            samples = sounds.read(clip, stamps)
            x = _variants(transform, samples, settings, device)
            rows = x.cpu().transpose(1, 2).numpy().astype(dtype, order="C").reshape(-1, config.n_bands)
            return rows, len(samples), stamps

    end = max((e.start + e.frames * variants for e in entries.values()), default=0)
    total, done = len(clips), len(clips) - len(missing)
    on_progress(Progress("features", done, total, "clips"))
    with (
        _appending(folder, end * settings.row_bytes) as append,
        closing(parallel_map(compute, missing, workers=workers, limit=4 * workers)) as results,
    ):
        for clip, result in results:
            if isinstance(result, DataError):
                skipped[clip.filename] = str(result).removesuffix(audio.KEEP_HINT)
            elif isinstance(result, Exception):
                raise result
            else:
                rows, samples, stamps = result
                line = {"filename": clip.filename, "start": end, "frames": len(rows) // variants, "samples": samples}
                append(rows, {**line, "crc32": zlib.crc32(rows.data), "sources": stamps})
                end += len(rows)
            done += 1
            on_progress(Progress("features", done, total, "clips"))
    lines = [f"{json.dumps(name)}\t{json.dumps(why)}\n" for name, why in skipped.items()]
    write_text(folder / "skipped.tsv", "".join(lines))


def _variants(
    transform: Any, samples: npt.NDArray[np.float32], settings: StoreSettings, device: torch.device | None
) -> torch.Tensor:
    """Features of a clip at each pitch, then with each compression: (variants, bands, frames)."""
    sound, rate = torch.from_numpy(samples)[None].to(device), transform.config.rate
    changed = []
    if len(settings.semitones) > 1 and settings.pitch_shift == "filters":
        pitches = transform(sound, semitones=settings.semitones)[0]
    else:
        pitches = transform(sound)
        changed = [change_pitch_and_time(samples, rate, semitones=s) for s in settings.semitones[1:]]
    changed += [compress(samples, rate, preset) for preset in settings.compression]
    return torch.cat([pitches, *(transform(torch.from_numpy(x)[None].to(device)) for x in changed)])


@contextmanager
def _appending(folder: Path, end: int) -> Iterator[Callable[[Array, dict[str, Any]], None]]:
    """Yields a function that appends frames and their index line; frames are on the disk before their lines."""
    lines: list[str] = []
    for name in ("features.bin", "index.jsonl"):
        refuse_link(folder / name)
    with (
        named_errors(folder / "features.bin"),
        open(folder / "features.bin", "ab") as data,
        open(folder / "index.jsonl", "ab") as index,
    ):
        data.truncate(end)
        index.truncate((folder / "index.jsonl").read_bytes().rfind(b"\n") + 1)  # without an incomplete last line

        def store_lines() -> None:
            data.flush()
            sync(data.fileno())
            index.write("".join(lines).encode())
            index.flush()
            sync(index.fileno())
            lines.clear()

        def append(rows: Array, line: dict[str, Any]) -> None:
            data.write(rows.data)
            lines.append(json_text(line) + "\n")
            if len(lines) >= _FLUSH_EVERY:
                store_lines()

        flush(folder)  # the names of both files
        try:
            yield append
        finally:
            store_lines()


def _stored_rows(stored: FileEncoder, clip: Clip, dtype: np.dtype[Any]) -> tuple[Array, int]:
    """Embeddings of a clip that were computed elsewhere, and its number of samples."""
    path = clip.sources[0].path
    samples = audio.info(path).samples_at(stored.card.rate)
    return stored.embeddings_of(path, samples).astype(dtype, order="C"), samples


def _is_due(clip: Clip, entry: Location | None, stale: Mapping[str, Location], stored: FileEncoder | None) -> bool:
    """Whether the features of a clip must be computed; missing files count as unchanged."""
    if entry is None or entry == stale.get(clip.filename):
        return True
    try:
        return _stamps(clip, stored) != entry.sources
    except DataError:
        return False


def _stamps(clip: Clip, stored: FileEncoder | None) -> tuple[Stamp, ...]:
    paths = [source.path for source in clip.sources]
    if stored is not None:
        paths.append(stored.find(paths[0]))
    try:
        return tuple((path.name, (status := path.stat()).st_size, status.st_mtime_ns) for path in paths)
    except OSError as error:
        raise DataError(f"{error.filename}: {error.strerror}") from error
