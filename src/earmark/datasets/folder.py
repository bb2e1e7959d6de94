"""A folder of recordings, at any depth, with labels next to them.

Labels are taken from the first of these that exists:

1. a label table in any format of `earmark.formats`: the file itself if a file was given; else `labels.*`, `tags.*` or
   `annotations.*` in the folder, or the only table there;
2. label files per recording (Audacity, Raven, JAMS), anywhere below, named after the recording;
3. names of subfolders as classes, without white space around them: `wolf/a.wav`, `owl/b.wav`. Each recording then
   has its class and no other.

An Excel workbook is a table too (extra `excel`). A spreadsheet of another kind in place of a table is an error: its
labels cannot be read, and folders would be mistaken for classes. `earmark.datasets.cleaning` cleans the labels.

Splits come from the table's column `split`; else from a file `split.csv` or `splits.tsv` (filename, split); else from
subfolders named train, validate and test (or val, dev, eval, ...); else they are drawn: `earmark.datasets.splitting`.

Labels without recording and recordings without label are skipped with a warning that counts and names them.
`match_names` documents how names are compared.

If labels are not needed, all recordings of a folder without labels are clips of which no class is known; they are in
the split "test" unless a file or folders say otherwise. Tables without labels, and other spreadsheets, are skipped.
"""

import csv
import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.datasets.base import DATASETS, FOLDER_NAMES, Clip, Collection, Dataset, Source
from earmark.datasets.cleaning import clean_labels, separator_of
from earmark.datasets.matching import (
    SPLIT_NAMES,
    match_names,
    name_to_key,
    names_below,
    normal_split,
    report_missing,
)
from earmark.datasets.splitting import draw_splits
from earmark.errors import DataError, MissingExtraError
from earmark.formats import FORMATS, Audacity, Format, guess_format, read_labels
from earmark.formats.text import SPREADSHEETS, WORKBOOK, class_name, read_text, refuse_spreadsheet, stem_of, whole_lines
from earmark.text import counted, first_few

_TABLE_NAMES = ("labels", "tags", "annotations")
_SPLIT_FILES = ("split", "splits")
_NO_LABELS = "no labels"  # their origin, if they are not needed
_MOVE = "; if it contains no labels, move it elsewhere"


@DATASETS.register(
    "folder", "a folder of recordings with a label table, label files, or subfolders named after classes"
)
class Folder(Dataset):
    """A folder of recordings. Clips are named as in the label table or, without one, by their path below the folder."""

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

    def __init__(self, *, separator: str | None = None, needs_labels: bool = True) -> None:
        self.separator = None if separator is None else separator_of(separator)
        self.needs_labels = needs_labels

    def clips(self, root: Path, split: str | None = None) -> Collection:
        """Recordings with labels; `root` is the folder, or a label table in it."""
        folder = root.parent if root.is_file() else root
        if not folder.is_dir():
            raise DataError(f"{root}: no such file or folder")
        recordings = audio.find(folder)
        foreign = audio.find(folder, suffixes=audio.FOREIGN)
        if not recordings:
            expected = _unreadable(foreign) or f"expected {', '.join(sorted(audio.SUFFIXES))}"
            raise DataError(f"{folder}: no audio files here or below; {expected}")
        path = root if root.is_file() else _find_table(folder, recordings, needs_labels=self.needs_labels)
        table, source = _read_labels(folder, path, recordings, needs_labels=self.needs_labels)
        origin = path or folder
        try:
            table, notes = clean_labels(table, self.separator)
        except DataError as error:
            raise DataError(f"{origin}: {error}") from error
        matched = match_names(table.filenames, recordings, folder)
        if not matched:
            raise DataError(
                f"{origin}: none of the {len(table.filenames)} labelled files is below {folder}: "
                f"{first_few(table.filenames)}; the {len(recordings)} recordings there are called "
                f"{first_few(names_below(recordings, folder))}"
            )
        for message in _skipped(folder, origin, table, matched, recordings, foreign):
            report_missing(message)
        splits = _read_splits(folder, origin, table, matched)
        has_own_splits = bool(splits)
        if not splits and source == _NO_LABELS:
            splits = dict.fromkeys(matched, "test")
        elif not splits:
            # by path: the spelling of a name in the table must not change the split of its recording
            below = {path: name_to_key(name) for name, path in names_below(matched.values(), folder).items()}
            splits = draw_splits(table, {name: (below[path], path) for name, path in matched.items()})
        clips = tuple(Clip(name, (Source(path),), splits[name]) for name, path in matched.items())
        labels = table.select(matched).replace(splits=splits)
        collection = Collection(clips, labels, source, has_own_splits, notes, self.separator)
        return collection if split is None else collection.split(split)


def _skipped(
    folder: Path,
    origin: Path,
    table: LabelTable,
    matched: Mapping[str, Path],
    recordings: Sequence[Path],
    foreign: Sequence[Path],
) -> Iterator[str]:
    """Messages about labels without a recording that can be read, and recordings without labels."""
    lost = [name for name in table.filenames if name not in matched]
    if foreign:
        yield f"{folder}: {_unreadable(foreign)}; skipped until then"
        unread = match_names(lost, foreign, folder)
        lost = [name for name in lost if name not in unread]
    if lost:
        n = len(table.filenames)
        yield f"{origin}: skipped {len(lost)} of {n} labelled files (no recording): {first_few(lost)}"
    used = set(matched.values())
    unlabelled = [path for path in recordings if path not in used]
    if unlabelled:
        names = first_few(names_below(unlabelled, folder))
        yield f"{folder}: skipped {len(unlabelled)} of {len(recordings)} recordings (no labels): {names}"


def _unreadable(foreign: Sequence[Path]) -> str:
    """What to do about recordings that must be converted; empty if there are none."""
    if not foreign:
        return ""
    kinds = ", ".join(sorted({path.suffix.lower().removeprefix(".") for path in foreign}))
    what = f"{counted(len(foreign), 'recording')} ({first_few(path.name for path in foreign)}) must be converted"
    command = f"ffmpeg -i {shlex.quote(foreign[0].name)} {shlex.quote(foreign[0].with_suffix('.flac').name)}"
    return f"{what}, since earmark does not read {kinds}: {command}"


def _find_table(folder: Path, recordings: Sequence[Path], *, needs_labels: bool) -> Path | None:
    """The label table in a folder, if there is one; several are an error."""
    files = [path for path in _label_files(folder.iterdir()) if stem_of(path).lower() not in _SPLIT_FILES]
    tables = [path for path in files if stem_of(path).lower() in _TABLE_NAMES]
    if not tables:
        stems = {path.stem for path in recordings}
        others = [path for path in files if stem_of(path) not in stems]
        tables = [path for path in others if (kind := _kind(path)) and not kind.per_recording]
        if not needs_labels:
            tables = [path for path in tables if _has_labels(path)]
    if len(tables) > 1:
        names = first_few(path.name for path in tables)
        raise DataError(f"{folder}: {len(tables)} label tables: {names}; pass one of them instead of the folder")
    return tables[0] if tables else None


def _has_labels(path: Path) -> bool:
    """Whether a table can be read as labels; otherwise a warning says why not."""
    try:
        if read_labels(path).classes:
            return True
        reason = f"{path}: no labels"
    except DataError as error:
        reason = str(error)
    report_missing(f"{reason}; skipped, since labels are not needed")
    return False


def _label_files(paths: Iterable[Path]) -> list[Path]:
    """Files that may contain labels, by suffix; hidden files and Excel's lock files are skipped."""
    suffixes = (".txt", WORKBOOK, *(entry.cls.suffix for entry in FORMATS))
    candidates = (path for path in paths if path.name.lower().removesuffix(".gz").endswith(suffixes))
    return sorted(path for path in candidates if not path.name.startswith((".", "~$")) and path.is_file())


def _kind(path: Path) -> type[Format] | None:
    """Format of a label file; None for other files, such as a text about the recordings."""
    try:
        return FORMATS[guess_format(path)].cls
    except (DataError, MissingExtraError):
        return None


def _read_labels(
    folder: Path, path: Path | None, recordings: Sequence[Path], *, needs_labels: bool
) -> tuple[LabelTable, str]:
    """Labels, and a description of their source."""
    if path is not None:
        table = read_labels(path)
        if not table.classes:
            raise DataError(f"{path}: lists {len(table.filenames)} files but no labels")
        return table, path.name
    _refuse_spreadsheets(folder, folder.rglob("*"), _TABLE_NAMES)
    labels = _read_label_files(folder, recordings)
    if labels is not None:
        return labels, "a file for each recording"
    if needs_labels:
        _refuse_spreadsheets(folder, folder.iterdir())
    labels = _folders_as_classes(folder, recordings)
    if labels is not None:
        return labels, FOLDER_NAMES
    if not needs_labels:
        return LabelTable([], filenames=names_below(recordings, folder), complete=False), _NO_LABELS
    raise DataError(
        f"{folder}: audio files but no labels: expected a table (labels.csv with columns filename and label), "
        "a label file next to each recording, or at least two subfolders named after classes"
    )


def _refuse_spreadsheets(folder: Path, paths: Iterable[Path], stems: Sequence[str] = ()) -> None:
    """Reject a spreadsheet that cannot be read and may hold the labels: with one of these names, or with any.

    If any name counts, a workbook without labels is rejected too.
    """
    for name, path in sorted(names_below(paths, folder).items()):
        if "/." in f"/{name}" or path.name.startswith("~$"):  # hidden, or Excel's lock file
            continue
        suffix = path.suffix.lower()
        if suffix in SPREADSHEETS and (not stems or path.stem.lower() in stems):
            refuse_spreadsheet(path, "" if stems else _MOVE)
        if suffix == WORKBOOK and not stems:
            try:
                guess_format(path)
            except DataError as error:
                raise DataError(f"{error}{_MOVE}") from error


def _read_label_files(folder: Path, recordings: Sequence[Path]) -> LabelTable | None:
    """Labels from files per recording; a recording next to its label file takes precedence."""
    stems = {path.stem for path in recordings}
    rows: list[Label] = []
    sources: dict[str, Path] = {}
    complete = True
    for file_name, path in names_below(_label_files(folder.rglob("*")), folder).items():
        stem = stem_of(path)
        if "/." in f"/{file_name}":  # hidden
            continue
        if stem.lower() in _TABLE_NAMES:
            raise DataError(f"{path}: a label table in a subfolder; pass it instead of the folder, or move it up")
        is_empty = not path.stat().st_size and stem in stems
        kind = Audacity if is_empty else _kind(path)  # which exports an empty file for a recording without events
        if kind is None or not (kind.per_recording or stem in stems):
            continue
        table = kind().read(path)
        complete &= table.complete
        names = {name: posixpath.join(posixpath.dirname(file_name), name) for name in table.filenames}
        for name in names.values():
            if sources.setdefault(name, path) != path:
                raise DataError(f"{sources[name]} and {path} both label {name}; keep one of them")
        rows += [row._replace(filename=names[row.filename]) for row in table]
    if not rows:
        return None
    below = {path: name for name, path in names_below(recordings, folder).items()}
    matched = {name: below[path] for name, path in match_names(sources, recordings, folder).items()}
    return LabelTable(rows, filenames=sources, complete=complete).renamed(matched)


def _folders_as_classes(folder: Path, recordings: Sequence[Path]) -> LabelTable | None:
    """Labels from the names of subfolders, below folders named like splits."""
    rows = []
    for name in names_below(recordings, folder):
        above = name.split("/")[:-1]
        if above and above[0].lower() in SPLIT_NAMES:
            above = above[1:]
        if above:
            try:
                rows.append(Label(name, None, None, class_name(above[0])))
            except DataError as error:
                raise DataError(f"{folder}: {error}, which is the name of a folder") from error
    # with one folder there would be no recording without the class
    return LabelTable(rows) if len({row.label for row in rows}) > 1 else None


def _read_splits(folder: Path, origin: Path, table: LabelTable, matched: Mapping[str, Path]) -> dict[str, str]:
    """Split of each clip, from the first of three sources that has any; empty if none has."""
    files = [path for path in _label_files(folder.iterdir()) if stem_of(path).lower() in _SPLIT_FILES]
    if len(files) > 1:
        raise DataError(f"{folder}: {len(files)} files of splits: {first_few(p.name for p in files)}; keep one of them")
    source = origin
    splits = {name: normal_split(table.splits[name], str(origin)) for name in matched if name in table.splits}
    if not splits and files:
        source = files[0]
        by_path = _read_split_file(source, folder, matched.values())
        splits = {name: by_path[path] for name, path in matched.items() if path in by_path}
    if not splits:
        source = folder
        below = {path: name for name, path in names_below(matched.values(), folder).items()}
        top = {name: below[path].split("/")[0].lower() for name, path in matched.items()}
        splits = {name: SPLIT_NAMES[part] for name, part in top.items() if part in SPLIT_NAMES}
    missing = [name for name in matched if name not in splits]
    if splits and missing:
        raise DataError(
            f"{source}: expected a split for all {len(matched)} recordings, {len(missing)} without: "
            f"{first_few(missing)}"
        )
    return splits


def _read_split_file(path: Path, folder: Path, recordings: Iterable[Path]) -> dict[Path, str]:
    """Splits by recording, from a file with columns filename and split, with or without a header row."""
    text = read_text(path)
    lines = csv.reader(whole_lines(text), delimiter="\t" if "\t" in text else ",")
    splits: dict[str, str] = {}
    try:
        for number, cells in enumerate(lines, 1):
            if not any(cells) or (number == 1 and cells[-1].strip().lower() == "split"):
                continue
            if len(cells) != 2:
                raise DataError(f"{path}:{number}: expected 2 columns (filename, split), got {len(cells)}")
            splits[cells[0].strip()] = normal_split(cells[1], f"{path}:{number}")
    except csv.Error as error:
        raise DataError(f"{path}:{lines.line_num}: not a table: {error}") from error
    return {recording: splits[name] for name, recording in match_names(splits, recordings, folder).items()}
