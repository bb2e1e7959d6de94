"""Data sets: recordings with labels, read into clips.

    data = open_data("recordings/")              # a folder with a label table, label files, or a subfolder per class
    data = open_data("recordings/labels.tsv")    # the same, with a given table
    data = open_data(with_separator("recordings/", ";"))   # its cells have several labels: crow;dog
    data = open_data("urban-sed:/data/URBAN-SED", split="test")
    data = open_data("medleydb,fold=3:/data/MedleyDB")
    data.clips, data.labels, data.classes, data.splits, data.split("train")

Each data set is one file with one registered class: its classes, licence, citation, layout and reader. Labels without
audio and audio without labels are never dropped silently: for published data sets they are an error, elsewhere a
`MissingDataWarning` with counts and names.

Files: `base` (the contract), `matching` (labels to recordings), `cleaning` and `checks` (probable mistakes in labels),
`splitting` (splits and folds), `mixing` (mixtures of clips), `examples` (a small data set); then one file for each data
set, which do not import each other.
"""

import json
import os
from pathlib import Path, PureWindowsPath
from typing import Any

from earmark.datasets.base import DATASETS, Clip, Collection, Dataset, Source
from earmark.datasets.cleaning import SEPARATORS, separator_of
from earmark.datasets.dcase2017 import DCASE2017
from earmark.datasets.folder import Folder
from earmark.datasets.matching import MissingDataWarning
from earmark.datasets.medleydb import MedleyDB
from earmark.datasets.soundscapes import Soundscapes
from earmark.datasets.urbansed import UrbanSED
from earmark.errors import ArgumentError
from earmark.files import path_text

__all__ = [
    "DATASETS",
    "DCASE2017",
    "Clip",
    "Collection",
    "Dataset",
    "Folder",
    "MedleyDB",
    "MissingDataWarning",
    "Soundscapes",
    "Source",
    "UrbanSED",
    "is_published",
    "open_data",
    "path_of",
    "separator_in",
    "with_separator",
]


def open_data(spec: str | Path, split: str | None = None, *, needs_labels: bool = True) -> Collection:
    """Open a data set, or one split of it: its clips and labels.

    `spec` is `NAME:PATH` with the name of a data set, or `NAME,OPTION=VALUE:PATH` with options; or a path: a folder, or
    a label table next to or above its recordings. A folder made by `earmark synth` (with soundscapes.json, or with
    labels.tsv, audio/ and annotations/) is read as such. The split "all" is all of it. A folder may be without labels
    if they are not needed, because they come from elsewhere.
    """
    name, options, path = _parse(spec)
    split = None if split == "all" else split
    path = Path(os.path.expanduser(path))
    if name is None:
        made_by_synth = (path / "soundscapes.json").is_file() or (
            (path / "labels.tsv").is_file() and (path / "audio").is_dir() and (path / "annotations").is_dir()
        )
        name = "soundscapes" if made_by_synth else "folder"
    if name == "folder" and not needs_labels:
        options["needs_labels"] = False
    return DATASETS.create(name, **options).clips(path, split)


def is_published(spec: str | Path) -> bool:
    """Whether a data set is given by its name, such as urban-sed:PATH, rather than as a folder or table."""
    return _parse(spec)[0] not in (None, "folder", "soundscapes")


def path_of(spec: str | Path) -> Path:
    """The path of a data set, without its name and options."""
    return _parse(spec)[2]


def with_separator(data: str | Path, separator: str | None) -> str:
    """The same data, with the character between several labels in one cell, or "none" if a cell has one label.

    >>> with_separator("recordings", ";")
    'folder,separator=semicolon:recordings'
    """
    if separator is None:
        return str(data)
    if is_published(data):
        raise ArgumentError(f"a separator is for labels of your own; {data} has its own format")
    char = separator_of(separator)
    name = next((name for name, text in SEPARATORS.items() if text == char), char)
    return f"folder,separator={name}:{path_of(data)}"


def separator_in(spec: str | Path) -> str | None:
    """The character between several labels in one cell, if the options of a data set state it; else None.

    >>> separator_in("folder,separator=semicolon:recordings"), separator_in("recordings")
    (';', None)
    """
    name, options, _ = _parse(spec)
    if name is not None:
        DATASETS.check_options(name, options)
    return separator_of(options["separator"]) if "separator" in options else None


def _parse(spec: str | Path) -> tuple[str | None, dict[str, Any], Path]:
    """Name of the data set, if given, its options, and its path."""
    name, colon, rest = path_text(spec, "data").partition(":")
    # an existing path is a path whatever its name; so is one with a slash before its colon, and C:\x on Windows
    if isinstance(spec, Path) or not colon or "/" in name or PureWindowsPath(spec).drive or Path(spec).exists():
        return None, {}, Path(spec)
    if not rest:
        raise ArgumentError(f"{spec!r}: no path after the colon; expected NAME:PATH, such as {name}:data")
    name, *texts = name.split(",")
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError(f"{spec!r}: expected OPTION=VALUE after the comma, got {text!r}")
        try:
            options[key] = json.loads(value)  # numbers, true, false
        except ValueError:
            options[key] = value
    return name, options, Path(rest)
