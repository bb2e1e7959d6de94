"""Files of a feature store: their schemas, and which clips they hold.

    store.json      settings: features, variants, number type
    features.bin    frames of all clips, appended one after another: (frames, bands)
    index.jsonl     a line per clip: where its frames are, their CRC-32, and the files they were computed from
    skipped.tsv     clips that could not be read, and why

Of several lines for a clip the last one counts. A line that is damaged, or points beyond features.bin, does not count:
its clip is not in the store, and the next build recomputes it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Strict

from earmark.encoders.features import CheckedFeatures
from earmark.errors import DataError
from earmark.schema import Many, parse, parse_json, read_json, record

VERSION = 3

PitchShift = Literal["filters", "sound"]
"""How pitch is shifted: by moving the mel filters, or by shifting the sound."""

Stamp = tuple[str, int, int]
"""Name, size and modification time (ns) of a file."""


@record
class StoreSettings:
    """Contents of store.json."""

    version: int
    features: CheckedFeatures
    dtype: Literal["float16", "float32"]
    semitones: Many[float] = Field(min_length=1, description="Pitch variants; the first is 0, the unchanged clip.")
    compression: Many[str] = ()
    pitch_shift: PitchShift = "filters"

    @property
    def variants(self) -> int:
        """How many versions there are of each clip."""
        return len(self.semitones) + len(self.compression)

    @property
    def row_bytes(self) -> int:
        """Size of a frame."""
        return self.features.n_bands * {"float16": 2, "float32": 4}[self.dtype]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "version": self.version,
            "features": self.features.to_dict(),
            "semitones": list(self.semitones),
            "compression": list(self.compression),
            "pitch_shift": self.pitch_shift,
            "dtype": self.dtype,
        }


@record
class Location:
    """A line of index.jsonl: where the frames of a clip are, `variants` blocks of `frames` rows from row `start` on."""

    filename: str
    sources: Many[Annotated[Stamp, Strict(False)]]  # the clip's files as they were when the features were computed
    start: int = Field(ge=0)
    frames: int = Field(ge=1)
    samples: int = Field(ge=1, le=1 << 48)  # at the features' sampling rate
    crc32: int = Field(ge=0)  # of all its frames


def read_settings(folder: Path) -> StoreSettings:
    """Settings of a store of this version."""
    path = folder / "store.json"
    if not path.exists():
        raise DataError(f"{folder} is not a feature store: it has no store.json")
    try:
        settings = read_json(dict[str, Any], path)
        version = settings.get("version")
        if version != VERSION:
            raise DataError(f"{path}: expected version {VERSION}, got {version!r:.40}")
        return parse(StoreSettings, settings, where=path)
    except DataError as error:
        raise DataError(f"{error}; delete {folder} to recompute its features, or choose another folder") from error


def read_index(folder: Path, settings: StoreSettings) -> dict[str, Location]:
    """Clips whose frames are complete."""
    try:
        size = (folder / "features.bin").stat().st_size
        text = (folder / "index.jsonl").read_bytes()
    except FileNotFoundError:
        return {}
    entries = {}
    for line in _lines(text[: text.rfind(b"\n") + 1]):
        if (line.start + line.frames * settings.variants) * settings.row_bytes <= size:
            entries[line.filename] = line
        else:
            entries.pop(line.filename, None)
    return entries


def _lines(text: bytes) -> Iterator[Location]:
    for line in text.split(b"\n"):
        try:
            yield parse_json(Location, line)
        except DataError:
            continue  # damaged


def read_skipped(folder: Path) -> dict[str, str]:
    """Why clips could not be read, by file name."""
    path = folder / "skipped.tsv"
    if not path.exists():
        return {}
    skipped = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        cells = [parse_json(str, cell, where=f"{path}:{number}") for cell in line.split(b"\t")]
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: expected 2 columns, got {len(cells)}")
        skipped[cells[0]] = cells[1]
    return skipped
