"""Data sets: folders of sound with labels, read into clips.

    data = open_data("recordings/")              your own: a label table or label files, or a sub-folder for each class
    data = open_data("recordings/labels.tsv")    the same, saying which table
    data = open_data("urban-sed:/data/URBAN-SED", split="test")
    data = open_data("medleydb,fold=3:/data/MedleyDB")
    data.clips, data.labels, data.classes, data.splits, data.split("train")

A data set is one file with one registered class: its classes, licence, citation and layout, a way to read it and a way
to write a small example of it. Labels without sound and sound without labels are never dropped in silence: where the
publisher promises both it is an error, elsewhere a `MissingDataWarning` with counts and names.

Files: `base` (what a data set is), `matching` (which recording a label means), `examples` (scenes for small examples);
then one file for each data set, which import those three and not each other.
"""

from __future__ import annotations

import json
import os
from pathlib import Path, PureWindowsPath
from typing import Any

from earmark.datasets.base import DATASETS, Clip, Collection, Dataset, Source
from earmark.datasets.dcase2017 import DCASE2017
from earmark.datasets.folder import Folder
from earmark.datasets.matching import MissingDataWarning
from earmark.datasets.medleydb import MedleyDB
from earmark.datasets.soundscapes import Soundscapes
from earmark.datasets.urbansed import UrbanSED
from earmark.errors import ArgumentError

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
    "open_data",
]


def open_data(spec: str | Path, split: str | None = None) -> Collection:
    """Clips and labels of a data set.

    Parameters
    ----------
    spec
        `NAME:PATH`, by the name of a data set, or `NAME,OPTION=VALUE:PATH` for one that has options; or a path: a
        folder, or a label table beside or above its recordings. A folder that `earmark synth` made (with
        soundscapes.json, or labels.tsv, audio/ and annotations/ in it) is read as such.
    split
        Only this one; by default all.
    """
    name, options, path = _parse(spec)
    path = Path(os.path.expanduser(path))
    if name is None:
        made_by_synth = (path / "soundscapes.json").is_file() or (
            (path / "labels.tsv").is_file() and (path / "audio").is_dir() and (path / "annotations").is_dir()
        )
        name = "soundscapes" if made_by_synth else "folder"
    return DATASETS.create(name, **options).clips(path, split)


def _parse(spec: str | Path) -> tuple[str | None, dict[str, Any], Path]:
    """Name of the data set, if one is given, its options, and path."""
    name, colon, rest = str(spec).partition(":")
    # what exists is a path, whatever is in its name; so is what has a slash before its colon, and C:\x on Windows
    if isinstance(spec, Path) or not colon or "/" in name or PureWindowsPath(spec).drive or Path(spec).exists():
        return None, {}, Path(spec)
    if not rest:
        raise ArgumentError(f"{spec!r}: no path after the colon; NAME:PATH expected, such as {name}:data")
    name, *texts = name.split(",")
    options: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError(f"{spec!r}: OPTION=VALUE expected after the comma, found {text!r}")
        try:
            options[key] = json.loads(value)  # numbers, true, false
        except ValueError:
            options[key] = value
    return name, options, Path(rest)
