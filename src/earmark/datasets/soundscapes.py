"""Soundscapes made by `earmark synth`: audio, specifications as JAMS, and one table with all labels.

Labels are read from the table, which also lists soundscapes without events. The data set `urban-sed` reads the
specifications of the same folders.
"""

from pathlib import Path

from earmark import audio
from earmark.datasets.base import DATASETS, Clip, Collection, Dataset, Source
from earmark.datasets.matching import name_to_key, names_below, normal_split
from earmark.errors import DataError
from earmark.formats import TSV
from earmark.text import first_few


@DATASETS.register("soundscapes", "what `earmark synth` writes: soundscapes with exact times")
class Soundscapes(Dataset):
    """Synthetic soundscapes. Clips are named by their path: `audio/train/NAME.flac`."""

    licence = "that of the sounds they were made from"
    citation = "none needed for soundscapes; cite the sound bank if you used one"
    layout = """\
OUT/
|-- labels.tsv       filename, onset, offset, label, split
|-- audio/
|   |-- train/       NAME.flac
|   |-- validate/
|   `-- test/
`-- annotations/
    |-- train/       NAME.jams
    |-- validate/
    `-- test/
"""

    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Clips and strong labels; a row without audio, or audio without a row, is an error."""
        path = root / "labels.tsv"
        if not path.is_file():
            raise DataError(f"{path}: no such file; `earmark synth` writes it last: run it again if it was stopped")
        table = TSV().read(path)
        table = table.renamed({name: name_to_key(name) for name in table.filenames})
        sounds = {name_to_key(name): sound for name, sound in names_below(audio.find(root / "audio"), root).items()}
        listed = set(table.filenames)
        silent = sorted(listed - sounds.keys())
        if silent:
            raise DataError(f"{path}: missing {len(silent)} of {len(listed)} files: {first_few(silent)}")
        unknown = [name for name in sounds if name not in listed]
        if unknown:
            raise DataError(
                f"{path}: no row for {len(unknown)} of {len(sounds)} soundscapes in audio: {first_few(unknown)}; "
                "remove them, or synthesise the soundscapes again"
            )
        splits = {name: normal_split(table.splits.get(name) or Path(name).parts[1], str(path)) for name in sounds}
        labels = table.replace(filenames=sounds, splits=splits)
        clips = tuple(Clip(name, (Source(sound),), splits[name]) for name, sound in sounds.items())
        return Collection(clips, labels) if split is None else Collection(clips, labels).split(split)
