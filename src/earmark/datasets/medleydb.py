"""MedleyDB: songs as stems, and all their mixes with one instrument left out.

The rules are those of the paper's authors, inferred from what they published and tested against it:

* A song has a full mix, `SONG---`, and one mix without each instrument of `LEFT_OUT` that it has, `SONG---INSTRUMENT`.
  All stems of that instrument are omitted; a mix without stems is not made. Every mix, also the full one, is the sum of
  stems weighted by the song's mixing coefficients.
* Labels are the exact names of the stems' instruments: "vocalists" is not "female singer".
* An event of a stem lasts from the first frame with confidence 0.5 or more to the next frame with less; what is still
  active in the last frame ends there. There is no minimum duration. Two stems of an instrument give two events, which
  may overlap. A stem without confidences has no events.
* In each of ten splits a fifth of the artists is for testing and a fifth of the other mixes for validation, so a song
  may be in training and validation in different mixes. Mixes with an instrument left out are in all three.

The 122 songs make 122 full mixes and 410 others. The paper counts 531: its authors lost the full mix of
AmarLal_SpringDay1, which has one instrument, by accident, and with their split files it is left out here too. Where one
stem remains, they used it unscaled; here it has its coefficient.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import scipy
import yaml
from pydantic import Field

from earmark import audio
from earmark.annotations import Label
from earmark.datasets.base import DATASETS, Clip, Collection, Dataset, Source
from earmark.datasets.matching import report_missing
from earmark.errors import ArgumentError, DataError
from earmark.schema import parse, read_json
from earmark.text import counted, first_few

Array = npt.NDArray[np.float64]
Coefficients = dict[str, dict[int, Annotated[float, Field(ge=0)]]]

CLASSES = (
    "acoustic guitar",
    "clean electric guitar",
    "distorted electric guitar",
    "drum set",
    "electric bass",
    "female singer",
    "male singer",
    "piano",
)
LEFT_OUT = (*CLASSES, "auxiliary percussion", "cello", "double bass", "flute", "violin", "vocalists")
"""Instruments that mixes leave out: the most frequent ones except synthesizer and effects."""

_METADATA, _ACTIVATIONS, _STEM = "_METADATA.yaml", "_ACTIVATION_CONF.lab", "_STEM_"
_COEFFICIENTS, _ARTISTS = "mixing_coefficients.yaml", "medley_artist_index.json"
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # yaml.safe_load, in C where libyaml is installed


@dataclass(frozen=True)
class Stem:
    """One recording of a multitrack; in MedleyDB 2 some have several instruments."""

    number: int
    filename: str
    instruments: tuple[str, ...]


@dataclass(frozen=True)
class Track:
    """Metadata of a multitrack."""

    name: str
    artist: str
    mix: str
    stems: tuple[Stem, ...]

    def mixes(self) -> dict[str, tuple[Stem, ...]]:
        """Stems of the full mix and of every mix with an instrument left out, by name.

        >>> bass, drums = Stem(1, "1.wav", ("electric bass",)), Stem(2, "2.wav", ("drum set",))
        >>> list(Track("Song", "Artist", "mix.wav", (bass, drums)).mixes())
        ['Song---', 'Song---drum set', 'Song---electric bass']
        """
        mixes = {f"{self.name}---": self.stems}
        for instrument in LEFT_OUT:
            rest = tuple(stem for stem in self.stems if instrument not in stem.instruments)
            if rest and len(rest) < len(self.stems):
                mixes[f"{self.name}---{instrument}"] = rest
        return mixes


def read_track(path: Path) -> Track:
    """Read `SONG_METADATA.yaml`."""
    data = _load_yaml(path)
    described = data.get("stems") if isinstance(data, dict) else None
    if not isinstance(described, dict) or not described:
        raise DataError(f"{path}: expected a mapping 'stems', as in metadata of MedleyDB")
    stems = []
    for key in sorted(described, key=str):
        number = re.fullmatch(r"S(\d+)", str(key))
        if not number:
            raise DataError(f"{path}: expected stems named S01, S02, ..., got {str(key)!r}")
        entry = described[key] if isinstance(described[key], dict) else {}
        filename, instrument = entry.get("filename"), entry.get("instrument")
        if not (isinstance(filename, str) and filename and isinstance(instrument, str | list) and instrument):
            raise DataError(
                f"{path}: stem {key} needs 'filename' and 'instrument', got {filename!r} and {instrument!r}"
            )
        instruments = instrument if isinstance(instrument, list) else [instrument]
        stems.append(Stem(int(number[1]), str(filename), tuple(map(str, instruments))))
    name = path.name.removesuffix(_METADATA)
    artist = str(data.get("artist") or name.partition("_")[0])
    return Track(name, artist, str(data.get("mix_filename") or f"{name}_MIX.wav"), tuple(stems))


def read_activations(path: Path) -> tuple[Array, dict[int, Array]]:
    """Read `SONG_ACTIVATION_CONF.lab`: times of frames, and the confidences of each stem by number."""
    lines = [(number, line) for number, line in enumerate(_text(path).splitlines(), start=1) if line.strip()]
    header = [cell.strip() for cell in lines[0][1].split(",")] if lines else []
    if header[:1] != ["time"] or len(header) < 2 or not all(re.fullmatch(r"S\d+", cell) for cell in header[1:]):
        raise DataError(f"{path}:1: expected columns time,S01,S02,..., got {','.join(header)[:60]!r}")
    if len(lines) == 1:
        raise DataError(f"{path}: no frames after the header")
    frames: list[list[float]] = []
    for number, line in lines[1:]:
        cells = line.split(",")
        try:
            time, *confidences = map(float, cells)
        except ValueError:
            raise DataError(f"{path}:{number}: expected numbers, got {line[:60]!r}") from None
        if len(cells) != len(header):
            raise DataError(f"{path}:{number}: expected {len(header)} columns, got {len(cells)}: {line[:60]!r}")
        if not all(0 <= confidence <= 1 for confidence in confidences):
            raise DataError(f"{path}:{number}: confidences: expected numbers in [0, 1], got {line[:60]!r}")
        if not math.isfinite(time) or (frames and time <= frames[-1][0]):
            raise DataError(f"{path}:{number}: times must increase, got {line[:60]!r}")
        frames.append([time, *confidences])
    values = np.array(frames)
    return values[:, 0], {int(cell[1:]): values[:, c] for c, cell in enumerate(header) if c}


def activations_to_events(times: Array, confidence: Array) -> list[tuple[float, float]]:
    """Onsets and offsets of runs of frames with a confidence of at least 0.5.

    >>> activations_to_events(np.arange(6) / 10, np.array([0.1, 0.5, 0.9, 0.2, 0.7, 0.8]))
    [(0.1, 0.3), (0.4, 0.5)]
    """
    active = np.concatenate([[False], confidence >= 0.5, [False]])
    edges = np.flatnonzero(active[1:] != active[:-1]).reshape(-1, 2)
    ends = np.append(times, times[-1])
    return [(float(times[first]), float(ends[last])) for first, last in edges]


def mixing_coefficients(mix: Path, stems: Sequence[Path], *, seconds: float = 60.0) -> list[float]:
    """Non-negative gains with which the sum of stems approximates the mix, by least squares of the waveforms.

    Excerpts of five seconds, `seconds` in all, are compared at random positions; shorter songs are compared completely.
    Stems that are silent there get 1.
    """
    rate = audio.info(mix).rate
    duration = min(audio.info(path).duration for path in (mix, *stems))
    n = len(stems)
    gram = np.zeros((n + 1, n + 1))
    for onset, offset in _excerpts(duration, seconds, np.random.default_rng(0)):
        excerpts = [audio.read(path, rate=rate, onset=onset, offset=offset) for path in (*stems, mix)]
        length = min(map(len, excerpts))
        block = np.stack([samples[:length] for samples in excerpts]).astype(np.float64)
        gram += block @ block.T
    energy = np.diag(gram)[:n]
    if not energy.any():
        return [1.0] * n
    # |stems x - mix|^2 depends on the waveforms only through the Gram matrix, so its root replaces them
    values, vectors = np.linalg.eigh(gram[:n, :n])
    kept = values > values.max() * 1e-12
    root = np.sqrt(values[kept])
    gains, _ = scipy.optimize.nnls(root[:, None] * vectors[:, kept].T, vectors[:, kept].T @ gram[:n, n] / root)
    return [float(gain) if power > 0 else 1.0 for gain, power in zip(gains, energy, strict=True)]


def _excerpts(duration: float, seconds: float, rng: np.random.Generator) -> Iterator[tuple[float, float]]:
    """An excerpt of five seconds in each of as many equal parts of the song as needed."""
    length = 5.0
    parts = math.ceil(min(duration, seconds) / length)
    for k in range(parts):
        part = duration / parts
        onset = k * part + (rng.uniform(0, part - length) if part > length else 0.0)
        yield onset, onset + min(length, part)


@DATASETS.register(
    "medleydb", "songs as stems, each instrument left out in turn: 8 instruments, 10 splits by artist (fold=0 to 9)"
)
class MedleyDB(Dataset):
    """MedleyDB as the paper uses it; see the module for the rules.

    Files are found by name anywhere below the root; of two with the same name, the one nearer to the root is used. So
    the audio download, a clone of the annotations' repository and the authors' split files may lie side by side. With
    `medley_artist_index.json` only the songs in it are used (the 122 of MedleyDB 1), with its artists; else all songs
    with audio, with the artists of their metadata.

    Labels follow the authors also where a mixing coefficient is 0, so that a stem is labelled but inaudible. `fold`
    selects one of the ten splits: the authors' if their files exist, else a random one with `fold` as seed.
    """

    classes = CLASSES
    licence = "CC BY-NC-SA 4.0"
    citation = (
        "R. M. Bittner, J. Salamon, M. Tierney, M. Mauch, C. Cannam, J. P. Bello: MedleyDB: A multitrack dataset for "
        "annotation-intensive MIR research. 15th International Society for Music Information Retrieval Conference "
        "(ISMIR), 2014"
    )
    layout = """\
MedleyDB/
|-- Audio/
|   `-- SONG/
|       |-- SONG_METADATA.yaml                  (or in Metadata/)
|       |-- SONG_MIX.wav
|       `-- SONG_STEMS/
|           |-- SONG_STEM_01.wav
|           `-- ...
|-- Annotations/
|   `-- Instrument_Activations/
|       `-- ACTIVATION_CONF/                    (or Activation_Confidence/)
|           `-- SONG_ACTIVATION_CONF.lab
|-- mixing_coefficients.yaml                    optional, of the Python package medleydb; else estimated from the sound
|-- medley_artist_index.json                    optional, of the authors' repository milsed
`-- index_{train,validate,test}{00..09}.json    optional, likewise; else drawn
"""

    def __init__(self, *, fold: int = 0) -> None:
        if fold not in range(10):
            raise ArgumentError(f"fold: expected an integer from 0 to 9, got {fold!r}")
        self.fold = int(fold)

    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Mixes below `root` and the events of their instruments."""
        wanted = self.wanted(root, split)
        files = _files_by_name(root)
        artists = read_json(dict[str, str], files[_ARTISTS]) if _ARTISTS in files else {}
        tracks = _find_tracks(root, files, artists)
        artist_of = {mix: artists.get(track.name, track.artist) for track in tracks for mix in track.mixes()}
        splits = _read_splits(files, self.fold) or _draw_splits(root, artist_of, self.fold)
        path = files.get(_COEFFICIENTS)
        coefficients = parse(Coefficients, _load_yaml(path), where=path) if path else None
        clips: list[Clip] = []
        rows: list[Label] = []
        for track in tracks:
            chosen = {mix: stems for mix, stems in track.mixes().items() if splits.get(mix) in wanted}
            if not chosen:
                continue
            sources = _sources(track, files, coefficients)
            events = self._events(track, files)
            for mix, stems in chosen.items():
                clips.append(Clip(mix, tuple(sources[stem.number] for stem in stems), splits[mix]))
                rows += sorted(Label(mix, *event) for stem in stems for event in events[stem.number])
        if not clips:
            raise DataError(f"{root}: no mix of these songs is in {' or '.join(wanted)}")
        return Collection.of(clips, rows, self.classes)

    def _events(self, track: Track, files: Mapping[str, Path]) -> dict[int, list[tuple[float, float, str]]]:
        """Events (onset, offset, class) of each stem."""
        name = track.name + _ACTIVATIONS
        if name not in files:
            raise DataError(f"{track.name}: {name} is missing; it is part of MedleyDB's annotations")
        times, confidences = read_activations(files[name])
        events = {}
        for stem in track.stems:
            spans = activations_to_events(times, confidences[stem.number]) if stem.number in confidences else []
            labels = [label for label in self.classes if label in stem.instruments]
            events[stem.number] = [(*span, label) for label in labels for span in spans]
        return events


def _files_by_name(root: Path) -> dict[str, Path]:
    files = [path for path in root.rglob("[!.]*") if path.suffix in (".wav", ".yaml", ".lab", ".json")]
    return {path.name: path for path in sorted(files, key=lambda path: (-len(path.parts), path))}


def _find_tracks(root: Path, files: Mapping[str, Path], artists: Mapping[str, str]) -> list[Track]:
    """Tracks with metadata and audio that are in the index of artists, if there is one."""
    with_sound = {name.partition(_STEM)[0] for name in files if _STEM in name and name.endswith(".wav")}
    known = {name.removesuffix(_METADATA) for name in files if name.endswith(_METADATA)}
    wanted = set(artists) or known | with_sound
    names = sorted(wanted & known & with_sound)
    if not names:
        raise DataError(
            f"{root}: no song with both SONG{_METADATA} and SONG{_STEM}01.wav among {len(known)} with metadata and "
            f"{len(with_sound)} with audio"
        )
    absent = sorted(wanted - set(names))
    if absent:
        report_missing(
            f"{root}: skipped {len(absent)} of {len(wanted)} songs (no audio or no metadata): {first_few(absent)}"
        )
    return [read_track(files[name + _METADATA]) for name in names]


def _sources(track: Track, files: Mapping[str, Path], coefficients: Coefficients | None) -> dict[int, Source]:
    """Audio file of each stem, with its gain in the mix."""
    absent = [name for name in (track.mix, *(stem.filename for stem in track.stems)) if name not in files]
    if absent:
        raise DataError(f"{track.name}: missing {counted(len(absent), 'audio file')}: {first_few(absent)}")
    paths = [files[stem.filename] for stem in track.stems]
    if coefficients is None:
        gains = mixing_coefficients(files[track.mix], paths)
    else:
        given = coefficients.get(track.name, {})
        if not given.keys() >= {stem.number for stem in track.stems}:
            raise DataError(
                f"{files[_COEFFICIENTS]}: expected a coefficient of each stem of {track.name}, got {given}; without "
                "this file they are estimated"
            )
        gains = [given[stem.number] for stem in track.stems]
    return {stem.number: Source(path, gain) for stem, path, gain in zip(track.stems, paths, gains, strict=True)}


def _read_splits(files: Mapping[str, Path], fold: int) -> dict[str, str] | None:
    """The authors' split of each mix, if their files exist."""
    names = {split: f"index_{split}{fold:02d}.json" for split in MedleyDB.splits}
    absent = [name for name in names.values() if name not in files]
    if len(absent) == len(names):
        return None
    if absent:
        raise DataError(f"split {fold} is incomplete: {', '.join(absent)} is missing")
    splits: dict[str, str] = {}
    for split, name in names.items():
        data: Any = read_json(Any, files[name])
        mixes = parse(list[str], data.get("id") if isinstance(data, dict) else data, where=f"{files[name]}: id")
        twice = [mix for mix in mixes if mix in splits]
        if twice:
            raise DataError(f"{files[name]}: {twice[0]!r} is also in split {splits[twice[0]]!r}")
        splits.update(dict.fromkeys(mixes, split))
    return splits


def _draw_splits(root: Path, artist_of: Mapping[str, str], seed: int) -> dict[str, str]:
    rng = np.random.default_rng(seed)

    def fifth(names: list[str]) -> set[str]:
        return {names[i] for i in rng.permutation(len(names))[: math.ceil(len(names) / 5)]}

    artists = sorted(set(artist_of.values()))
    if len(artists) < 2:
        raise DataError(f"{root}: all songs are by {artists[0]!r}; a split by artist needs at least two artists")
    tested = fifth(artists)
    rest = sorted(mix for mix, artist in artist_of.items() if artist not in tested)
    splits = dict.fromkeys(rest, "train") | dict.fromkeys(fifth(rest), "validate")
    return splits | {mix: "test" for mix in artist_of if mix not in splits}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8: {error.reason}") from error


def _load_yaml(path: Path) -> Any:
    text = _text(path)
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_YAML)):
            raise DataError(f"{path}: expected YAML without aliases")  # a few lines of them can stand for gigabytes
        return yaml.load(text, Loader=_YAML)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else f"{path}"
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise DataError(f"{where}: not YAML: {problem}") from error
    except RecursionError:
        raise DataError(f"{path}: not YAML of MedleyDB: nested too deeply") from None
