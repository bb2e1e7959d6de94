"""DCASE 2017 Task 4: ten seconds each of 52,763 YouTube videos, with seventeen warning and traffic sounds.

Splits are named as in the paper: the challenge's *training* set is `train`, its *testing* set `validate`, its
*evaluation* set `test`. Training labels are weak: their times are those of the excerpt in the video, and are dropped.
The others are strong. A strong row from 0 to 0 marks a class that AudioSet lists for the clip and for which the
annotators gave no times; it becomes a weak label, so that the class is unknown in every frame.

Audio files are found by name anywhere below the folder, with or without the "Y" that the organisers' script puts in
front. Videos disappear, so clips without audio are skipped with a warning that counts them.
"""

from pathlib import Path

from earmark.annotations import LabelTable
from earmark.datasets.base import DATASETS, Clip, Collection, Dataset, Source
from earmark.datasets.matching import report_missing, sounds_by_stem
from earmark.errors import DataError
from earmark.formats import FORMATS
from earmark.formats.dcase2017 import CLASSES
from earmark.text import counted, first_few

_LABELS = {
    "train": "groundtruth_weak_label_training_set.csv",
    "validate": "groundtruth_strong_label_testing_set.csv",
    "test": "groundtruth_strong_label_evaluation_set.csv",
}


@DATASETS.register("dcase2017", "DCASE 2017 Task 4: 52,763 clips of 10 s, 17 traffic sounds, weak labels to train on")
class DCASE2017(Dataset):
    """DCASE 2017 Task 4, with the organisers' label files. Clips are named as in those: `ID_START_END.wav`."""

    classes = CLASSES
    licence = "labels Apache-2.0; the audio belongs to the videos' authors"
    citation = (
        "A. Mesaros, T. Heittola, A. Diment, B. Elizalde, A. Shah, E. Vincent, B. Raj and T. Virtanen. DCASE 2017 "
        "challenge setup: tasks, datasets and baseline system. Workshop on Detection and Classification of Acoustic "
        "Scenes and Events, 2017."
    )
    layout = f"""\
DCASE2017/                  (folders may have other names)
|-- groundtruth_release/
|   |-- {_LABELS["train"]}        51,172 clips
|   |-- {_LABELS["validate"]}       488
|   `-- {_LABELS["test"]}    1,103
|-- unbalanced_train_segments_training_set_audio_formatted_and_segmented_downloads/
|   `-- YID_START_END.wav   or ID_START_END.wav
|-- unbalanced_train_segments_testing_set_audio_formatted_and_segmented_downloads/
`-- evaluation_set_formatted_audio_segments/
"""

    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Clips that have audio, and their labels."""
        tables = {part: _read_split(root, part) for part in self.wanted(root, split)}
        sounds = sounds_by_stem(root)
        clips: list[Clip] = []
        for part, table in tables.items():
            stems = {name: name.removesuffix(".wav") for name in table.filenames}
            paths = {name: sounds.get(f"Y{stem}") or sounds.get(stem) for name, stem in stems.items()}
            clips += [Clip(name, (Source(path),), part) for name, path in paths.items() if path is not None]
            lost = [name for name, path in paths.items() if path is None]
            if lost:
                report_missing(
                    f"{root}: skipped {len(lost)} of {len(paths)} clips of {part} (no audio file): {first_few(lost)}"
                )
        if not clips:
            raise DataError(f"{root}: no audio file of any labelled clip; expected YID_START_END.wav, anywhere below")
        unlisted = sounds.keys() - {clip.sources[0].path.stem for clip in clips}
        if split is None and unlisted:
            report_missing(
                f"{root}: skipped {counted(len(unlisted), 'audio file')} (in no label file): "
                f"{first_few(sorted(unlisted))}"
            )
        rows = [row for clip in clips for row in tables[clip.split].of(clip.filename)]
        return Collection.of(clips, rows, CLASSES)


def _read_split(root: Path, split: str) -> LabelTable:
    # the organisers' repository has some files twice; those in groundtruth_release are newer
    files = sorted(root.rglob(_LABELS[split]), key=lambda path: (path.parent.name != "groundtruth_release", path))
    if not files:
        raise DataError(f"{root}: no label file {_LABELS[split]} here or below; the organisers publish it")
    return FORMATS.create("dcase2017").read(files[0])
