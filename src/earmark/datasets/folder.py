"""Anybody's recordings: a folder of sound files, at any depth, with labels beside them.

Labels are looked for in this order:

1. a label table, of any format in `earmark.formats`: the file itself if a file was given; else `labels.*`, `tags.*` or
   `annotations.*` in the folder, or the only table there;
2. files of labels per recording (Audacity, Raven, JAMS), anywhere below, called like the recording;
3. names of sub-folders as classes: `wolf/a.wav`, `owl/b.wav`. Each recording then has its class and no other.

A spreadsheet where a table is missing is an error: its labels are not read, and folders would be taken for classes.

Splits come from the table's column `split`; else from a file `split.csv` or `splits.tsv` (filename, split); else from
sub-folders called train, validate and test (or val, dev, eval, ...); else from `split_by_hash`,
by the recording's path below the folder.

What finds no partner, a label without recording or a recording without label, is left out with a warning that counts
and names it. `match_names` says how names are compared.
"""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets.base import DATASETS, FOLDER_NAMES, Clip, Collection, Dataset, Source
from earmark.datasets.matching import (
    SPLIT_NAMES,
    first_few,
    match_names,
    name_to_key,
    names_below,
    normal_split,
    report_missing,
    split_by_hash,
)
from earmark.errors import DataError
from earmark.formats import FORMATS, Audacity, Format, guess_format, read_labels
from earmark.formats.text import SPREADSHEETS, read_text, refuse_spreadsheet, stem_of

__all__ = ["Folder"]

_TABLE_NAMES = ("labels", "tags", "annotations")
_SPLIT_FILES = ("split", "splits")


@DATASETS.register("folder", "a folder of recordings with a label table, label files, or sub-folders named by class")
class Folder(Dataset):
    """Your own recordings. Clips are called as the label table calls them; without one, by path below the folder."""

    licence = "yours"
    citation = "yours"
    layout = """\
DATA/
|-- labels.tsv       filename, onset, offset, label[, split]; no times: somewhere in the file
|-- split.csv        filename, split; where labels have no such column
`-- any/where/       RECORDING.wav, .flac, .mp3, .ogg, ...

or                   or
DATA/                DATA/
|-- a.wav            |-- wolf/
|-- a.txt            |   `-- a.wav
|-- b.wav            `-- owl/
`-- b.txt                `-- b.wav
"""

    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Recordings that have labels, with them; `root` is the folder, or a label table in it."""
        folder = root.parent if root.is_file() else root
        if not folder.is_dir():
            raise DataError(f"{root}: no such file or folder")
        recordings = audio.find(folder)
        if not recordings:
            raise DataError(f"{folder}: no sound files, here or below; looked for {', '.join(sorted(audio.SUFFIXES))}")
        path = root if root.is_file() else _find_table(folder, recordings)
        table, source = _read_labels(folder, path, recordings)
        origin = path or folder
        found = match_names(table.filenames, recordings, folder)
        _report(folder, origin, table.filenames, recordings, found)
        splits = _read_splits(folder, origin, table, found)
        labels = table.select(found)
        labels = LabelTable(labels, filenames=found, classes=table.classes, complete=table.complete, splits=splits)
        collection = Collection(
            tuple(Clip(name, (Source(path),), splits[name]) for name, path in found.items()), labels, source
        )
        return collection if split is None else collection.split(split)


def _find_table(folder: Path, recordings: Sequence[Path]) -> Path | None:
    """The label table in a folder, if there is one; more than one is an error."""
    files = [path for path in _label_files(folder.iterdir()) if stem_of(path).lower() not in _SPLIT_FILES]
    tables = [path for path in files if stem_of(path).lower() in _TABLE_NAMES]
    if not tables:
        stems = {path.stem for path in recordings}
        others = [path for path in files if stem_of(path) not in stems]
        tables = [path for path in others if (kind := _kind(path)) and not kind.per_recording]
    if len(tables) > 1:
        raise DataError(
            f"{folder}: {len(tables)} label tables: {first_few(path.name for path in tables)}; "
            "name the one that is meant instead of the folder"
        )
    return tables[0] if tables else None


def _label_files(paths: Iterable[Path]) -> list[Path]:
    """Files that may hold labels, by suffix."""
    suffixes = (".txt", *(entry.cls.suffix for entry in FORMATS))
    return sorted(
        path
        for path in paths
        if path.name.lower().removesuffix(".gz").endswith(suffixes) and not path.name.startswith(".") and path.is_file()
    )


def _kind(path: Path) -> type[Format] | None:
    """The format of a label file; None for some other file, such as a text about the recordings."""
    try:
        return FORMATS[guess_format(path)].cls
    except DataError:
        return None


def _read_labels(folder: Path, path: Path | None, recordings: Sequence[Path]) -> tuple[LabelTable, str]:
    """Labels, and where they come from, in words."""
    if path is not None:
        table = read_labels(path)
        if not table.classes:
            raise DataError(f"{path}: names {len(table.filenames)} files and labels none of them")
        return table, path.name
    _refuse_spreadsheets(folder, folder.rglob("*"), _TABLE_NAMES)
    found = _read_label_files(folder, recordings)
    if found is not None:
        return found, "a file for each recording"
    _refuse_spreadsheets(folder, folder.iterdir())
    found = _folders_as_classes(folder, recordings)
    if found is None:
        raise DataError(
            f"{folder}: sound files but no labels: expected a table (labels.tsv with columns filename, onset, offset, "
            "label), a label file beside each recording, or a sub-folder for each class, two at least"
        )
    return found, FOLDER_NAMES


def _refuse_spreadsheets(folder: Path, paths: Iterable[Path], stems: Sequence[str] = ()) -> None:
    """Refuse a spreadsheet that may hold the labels, of any name or of some."""
    for name, path in sorted(names_below(paths, folder).items()):
        is_passed_over = "/." in f"/{name}" or path.name.startswith("~$")  # the latter is what Excel keeps while open
        if path.suffix.lower() in SPREADSHEETS and not is_passed_over:
            if not stems:
                refuse_spreadsheet(path, "; if it holds no labels, keep it elsewhere")
            if path.stem.lower() in stems:
                refuse_spreadsheet(path)


def _read_label_files(folder: Path, recordings: Sequence[Path]) -> LabelTable | None:
    """Labels from files per recording; what they label is looked for beside them first."""
    stems = {path.stem for path in recordings}
    rows: list[Label] = []
    sources: dict[str, Path] = {}
    complete = True
    for name_of_file, path in names_below(_label_files(folder.rglob("*")), folder).items():
        stem = stem_of(path)
        if "/." in f"/{name_of_file}":  # hidden
            continue
        if stem.lower() in _TABLE_NAMES:
            raise DataError(f"{path}: a label table in a sub-folder; name it instead of the folder, or move it up")
        # an empty file is what Audacity exports when nothing was heard
        kind = _kind(path) if path.stat().st_size else Audacity if stem in stems else None
        if kind is None or not (kind.per_recording or stem in stems):
            continue
        table = kind().read(path)
        complete &= table.complete
        names = {name: posixpath.join(posixpath.dirname(name_of_file), name) for name in table.filenames}
        for name in names.values():
            if sources.setdefault(name, path) != path:
                raise DataError(f"{sources[name]} and {path} both label {name}; keep one of them")
        rows += [row._replace(filename=names[row.filename]) for row in table]
    if not rows:
        return None
    found = match_names(sources, recordings, folder)
    below = {path: name for name, path in names_below(recordings, folder).items()}
    whole = LabelTable(rows, filenames=sources, complete=complete)
    return whole.renamed({name: below[path] for name, path in found.items()})


def _folders_as_classes(folder: Path, recordings: Sequence[Path]) -> LabelTable | None:
    """Labels from the names of sub-folders, below those named like splits."""
    rows = []
    for name in names_below(recordings, folder):
        above = name.split("/")[:-1]
        if above and above[0].lower() in SPLIT_NAMES:
            above = above[1:]
        if above:
            rows.append(Label(name, None, None, above[0]))
    # one folder says nothing: there would be no recording without the class
    return LabelTable(rows) if len({row.label for row in rows}) > 1 else None


def _report(
    folder: Path, origin: Path, names: Sequence[str], recordings: Sequence[Path], found: Mapping[str, Path]
) -> None:
    """Say which labels and which recordings have no partner; none with one is an error."""
    lost = [name for name in names if name not in found]
    if not found:
        raise DataError(
            f"{origin}: none of the {len(names)} labelled files is below {folder}: {first_few(names)}; "
            f"the {len(recordings)} recordings there are called {first_few(names_below(recordings, folder))}"
        )
    if lost:
        report_missing(
            f"{origin}: {len(lost)} of {len(names)} labelled files have no recording and are left out: "
            f"{first_few(lost)}"
        )
    used = set(found.values())
    mute = [path for path in recordings if path not in used]
    if mute:
        report_missing(
            f"{folder}: {len(mute)} of {len(recordings)} recordings have no labels and are left out: "
            f"{first_few(names_below(mute, folder))}"
        )


def _read_splits(folder: Path, origin: Path, table: LabelTable, found: Mapping[str, Path]) -> dict[str, str]:
    """Split of each clip, from the first of the four places that says anything."""
    where = origin
    said = {name: normal_split(table.splits[name], str(origin)) for name in found if name in table.splits}
    files = [path for path in _label_files(folder.iterdir()) if stem_of(path).lower() in _SPLIT_FILES]
    if len(files) > 1:
        raise DataError(f"{folder}: {len(files)} files of splits: {first_few(p.name for p in files)}; keep one of them")
    if not said and files:
        (where,) = files
        by_path = _read_split_file(where, folder, found.values())
        said = {name: by_path[path] for name, path in found.items() if path in by_path}
    if not said:
        where = folder
        top = {path: name.split("/")[0].lower() for name, path in names_below(found.values(), folder).items()}
        said = {name: SPLIT_NAMES[top[path]] for name, path in found.items() if top[path] in SPLIT_NAMES}
    if not said:
        # by the recording, not by how a table spells it: else another spelling would test on what was trained on
        keys = {path: name_to_key(name) for name, path in names_below(found.values(), folder).items()}
        drawn = split_by_hash(keys.values())
        return {name: drawn[keys[path]] for name, path in found.items()}
    without = [name for name in found if name not in said]
    if without:
        raise DataError(
            f"{where}: {len(without)} of {len(found)} recordings have no split while the others have: "
            f"{first_few(without)}"
        )
    return {name: said[name] for name in found}


def _read_split_file(path: Path, folder: Path, recordings: Iterable[Path]) -> dict[Path, str]:
    """Splits by recording, from a file with columns filename and split, with a header or without."""
    text = read_text(path)
    lines = csv.reader(text.splitlines(), delimiter="\t" if "\t" in text else ",")
    rows: dict[str, str] = {}
    for number, cells in enumerate(lines, 1):
        if not any(cells) or (number == 1 and cells[-1].strip().lower() == "split"):
            continue
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: 2 columns expected (filename, split), {len(cells)} found")
        rows[cells[0].strip()] = normal_split(cells[1], f"{path}:{number}")
    found = match_names(rows, recordings, folder)
    return {found[name]: split for name, split in rows.items() if name in found}
