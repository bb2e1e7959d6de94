"""Match names in labels with recordings; names of splits."""

import os
import posixpath
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path

from earmark import audio
from earmark.errors import DataError
from earmark.text import first_few

SPLIT_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validate", "validation", "valid", "val", "dev"), "validate"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""Usual names of splits, in lower case, and the names that earmark uses."""


class MissingDataWarning(UserWarning):
    """Labels without recording, or recordings without label, are skipped."""


def report_missing(message: str) -> None:
    """Warn, attributed to the caller's caller."""
    warnings.warn(message, MissingDataWarning, stacklevel=3)


def name_to_key(name: str) -> str:
    """Normalise a file name for comparison: forward slashes, no leading "./", composed accents.

    >>> name_to_key(".\\\\audio\\\\owl.wav")
    'audio/owl.wav'
    """
    # macOS gives decomposed accents; label tables have composed ones
    return posixpath.normpath(unicodedata.normalize("NFC", name.replace("\\", "/")))


def names_below(paths: Iterable[Path], root: Path) -> dict[str, Path]:
    """Paths by their name below a folder, with forward slashes."""
    # slicing strings is much faster than `relative_to` for 50,000 files
    start = len(os.path.join(root, "")) if root != Path() else 0
    return {str(path)[start:].replace(os.sep, "/"): path for path in paths}


def normal_split(name: str, where: str) -> str:
    """earmark's name of a split; `where` is the prefix of the error for unknown names.

    >>> normal_split("Val", "labels.tsv"), normal_split("evaluation", "labels.tsv")
    ('validate', 'test')
    """
    split = SPLIT_NAMES.get(name.strip().lower())
    if split is None:
        raise DataError(f"{where}: unknown split {name!r}; use train, validate or test")
    return split


def sounds_by_stem(folder: Path) -> dict[str, Path]:
    """Audio files below a folder, by name without suffix; duplicates are an error."""
    sounds: dict[str, Path] = {}
    for path in audio.find(folder):
        if sounds.setdefault(path.stem, path) != path:
            raise DataError(f"{sounds[path.stem]} and {path} have the same name; keep one of them")
    return sounds


def match_names(names: Iterable[str], recordings: Iterable[Path], root: Path) -> dict[str, Path]:
    """Recordings by their names in labels; names without a recording are left out.

    A name is compared as a path below `root`; then by its longest end that fits a recording, at least the last part;
    then likewise without suffix. A recording matched by a stricter rule is not matched again by a looser one. A name
    that fits several recordings, or two names that fit one, are an error. Finally case is ignored, as on Windows, for
    names and recordings that fit only each other.

    >>> matched = match_names(["a.wav", "B.mp3", "c.wav"], [Path("d/x/a.wav"), Path("d/b.flac")], Path("d"))
    >>> {name: path.as_posix() for name, path in matched.items()}
    {'a.wav': 'd/x/a.wav', 'B.mp3': 'd/b.flac'}
    """
    exact = {name_to_key(name): path for name, path in names_below(recordings, root).items()}
    keys_by_name = {name: name_to_key(name) for name in names}
    matched = {name: key for name, key in keys_by_name.items() if key in exact}
    for without_suffix in (False, True):
        taken = set(matched.values())
        names_by_key: dict[str, str] = {}
        unmatched = {name: key for name, key in keys_by_name.items() if name not in matched}
        for name, fits in _fitting(unmatched, exact, without_suffix).items():
            key = keys_by_name[name]
            # the same path in another case takes precedence
            fits = [other for other in fits if other.casefold() == key.casefold()] or fits
            if taken.issuperset(fits):
                continue
            if len(fits) > 1:
                raise DataError(
                    f"{name!r} could be any of {len(fits)} recordings: {first_few(fits)}; "
                    f"label it by its path below {root}"
                )
            if fits[0] in names_by_key:
                raise DataError(
                    f"{names_by_key[fits[0]]!r} and {name!r} both match {exact[fits[0]]}; use one name for it"
                )
            names_by_key[fits[0]] = name
            matched[name] = fits[0]
    unmatched = {name: key for name, key in keys_by_name.items() if name not in matched}
    matched |= _in_any_case(unmatched, exact, set(matched.values()))
    return {name: exact[matched[name]] for name in keys_by_name if name in matched}


def _in_any_case(keys_by_name: Mapping[str, str], keys: Iterable[str], taken: Set[str]) -> dict[str, str]:
    """Keys that names fit up to case; none where a name fits several keys, or several names fit one."""
    fitting: dict[str, str] = {}
    for without_suffix in (False, True):
        for name, fits in _fitting(keys_by_name, keys, without_suffix, str.casefold).items():
            if len(fits) == 1 and fits[0] not in taken:
                fitting.setdefault(name, fits[0])
    times = Counter(fitting.values())
    return {name: key for name, key in fitting.items() if times[key] == 1}


def _fitting(
    keys_by_name: Mapping[str, str], keys: Iterable[str], without_suffix: bool, form: Callable[[str], str] = str
) -> dict[str, list[str]]:
    """Keys that share the longest end with each name that has any: "x/a.wav" and "y/a.wav" share "a.wav"."""
    index: dict[str, list[str]] = {}
    for key in keys if keys_by_name else ():
        for end in _ends(form(posixpath.splitext(key)[0] if without_suffix else key)):
            index.setdefault(end, []).append(key)
    fitting = {}
    for name, key in keys_by_name.items():
        # a name without suffix may contain a dot, as in "owl_30.000_40.000", so it is tried unchanged first
        ends = _ends(form(key)) + (_ends(form(posixpath.splitext(key)[0])) if without_suffix else [])
        shared = next((end for end in ends if end in index), None)
        if shared is not None:
            fitting[name] = index[shared]
    return fitting


def _ends(key: str) -> list[str]:
    parts = key.split("/")
    return ["/".join(parts[i:]) for i in range(len(parts))]
