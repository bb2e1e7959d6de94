"""URBAN-SED: soundscapes of city sounds with exact times, releases 1.0 and 2.0.

Both releases have the same folders. Annotations exist as TXT (Audacity labels) and as JAMS with the same content; TXT
is preferred because it is faster to read.
"""

from pathlib import Path

from earmark.annotations import Label
from earmark.datasets.base import DATASETS, Clip, Collection, Dataset, Source
from earmark.datasets.matching import names_below, sounds_by_stem
from earmark.errors import DataError, unknown_name
from earmark.formats import FORMATS
from earmark.synthesis.bank import CLASSES
from earmark.text import first_few


@DATASETS.register("urban-sed", "10,000 soundscapes of 10 s, ten city sounds, strong labels")
class UrbanSED(Dataset):
    """URBAN-SED as published, or synthesised again as flac. Clips are named by their path: `audio/train/NAME.wav`."""

    classes = CLASSES
    licence = "CC BY 4.0"
    citation = (
        "J. Salamon, D. MacConnell, M. Cartwright, P. Li and J. P. Bello. Scaper: a library for soundscape synthesis "
        "and augmentation. IEEE Workshop on Applications of Signal Processing to Audio and Acoustics, 2017."
    )
    layout = """\
URBAN-SED/
|-- audio/
|   |-- train/       NAME.wav (or .flac), 6,000 of them
|   |-- validate/    2,000
|   `-- test/        2,000
`-- annotations/
    |-- train/       NAME.txt or NAME.jams, or both, one for each sound file
    |-- validate/
    `-- test/
"""

    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Clips and strong labels; audio without annotation, or an annotation without audio, is an error."""
        clips: list[Clip] = []
        rows: list[Label] = []
        for part in self.wanted(root, split):
            if split is None and not any((root / kind / part).is_dir() for kind in ("audio", "annotations")):
                continue
            folder = root / "audio" / part
            if not folder.is_dir():
                raise DataError(f"{folder}: no such folder; URBAN-SED has its audio there")
            sounds, labels = sounds_by_stem(folder), read_annotations(root, part)
            lost = sorted(labels.keys() - sounds.keys())
            unlabelled = sorted(sounds.keys() - labels.keys())
            if lost:
                raise DataError(
                    f"{root}: {len(lost)} annotations of {part} without audio in audio/{part}: {first_few(lost)}"
                )
            if unlabelled:
                raise DataError(
                    f"{root}: {len(unlabelled)} audio files of {part} without annotation in annotations/{part}: "
                    f"{first_few(unlabelled)}"
                )
            for name, path in names_below(sounds.values(), root).items():
                clips.append(Clip(name, (Source(path),), part))
                rows += [row._replace(filename=name) for row in labels[path.stem]]
        if not clips:
            raise DataError(f"{root}: no audio files in audio/train, audio/validate or audio/test")
        return Collection.of(clips, rows, self.classes)


def read_annotations(root: Path, split: str) -> dict[str, list[Label]]:
    """Events of each soundscape of a split, by its name without suffix."""
    folder = root / "annotations" / split
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; URBAN-SED has its annotations there, as NAME.txt or NAME.jams")
    files = sorted(folder.iterdir())
    chosen = {path.stem: path for suffix in (".jams", ".txt") for path in files if path.suffix.lower() == suffix}
    readers = {".jams": FORMATS.create("jams"), ".txt": FORMATS.create("audacity")}
    annotations: dict[str, list[Label]] = {}
    for stem, path in chosen.items():
        annotations[stem] = list(readers[path.suffix.lower()].read(path))
        for row in annotations[stem]:
            if row.label not in CLASSES:
                raise DataError(f"{path}: {unknown_name('label', row.label, CLASSES)}")
    return annotations
