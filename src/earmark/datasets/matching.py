"""Which recording a label means, which split it belongs to, and what to say about those that find no partner."""

from __future__ import annotations

import hashlib
import os
import posixpath
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from pathlib import Path

from earmark import audio
from earmark.errors import DataError
from earmark.text import first_few

__all__ = [
    "SPLIT_NAMES",
    "MissingDataWarning",
    "first_few",
    "match_names",
    "name_to_key",
    "names_below",
    "normal_split",
    "report_missing",
    "sounds_by_stem",
    "split_by_hash",
]

SPLIT_NAMES: Mapping[str, str] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validate", "validation", "valid", "val", "dev"), "validate"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
"""What people call their splits, in small letters, and what they are called here."""


class MissingDataWarning(UserWarning):
    """Labels without recording or recordings without label: left out, counted and named."""


def report_missing(message: str) -> None:
    """Warn, in the name of whoever asked for the data."""
    warnings.warn(message, MissingDataWarning, stacklevel=3)


def name_to_key(name: str) -> str:
    """A file name as it is compared: forward slashes, no leading "./", accents composed.

    >>> name_to_key(".\\\\audio\\\\owl.wav")
    'audio/owl.wav'
    """
    # macOS hands out decomposed accents where a label table, typed by hand, has composed ones
    return posixpath.normpath(unicodedata.normalize("NFC", name.replace("\\", "/")))


def names_below(paths: Iterable[Path], root: Path) -> dict[str, Path]:
    """Paths by what they are called below a folder, with forward slashes.

    >>> list(names_below([Path("d/x/a.wav")], Path("d")))
    ['x/a.wav']
    """
    # by cutting strings: `relative_to` would take most of the time that a folder of 50,000 takes
    start = len(os.path.join(root, "")) if root != Path() else 0
    return {str(path)[start:].replace(os.sep, "/"): path for path in paths}


def normal_split(name: str, where: str) -> str:
    """Name of a split as it is called here; `where` says who used it, should nobody know it.

    >>> normal_split("Val", "labels.tsv"), normal_split("evaluation", "labels.tsv")
    ('validate', 'test')
    """
    split = SPLIT_NAMES.get(name.strip().lower())
    if split is None:
        raise DataError(f"{where}: split {name!r} is not known; use train, validate or test")
    return split


def sounds_by_stem(folder: Path) -> dict[str, Path]:
    """Sound files below a folder, by name without suffix; two of one name are an error."""
    found: dict[str, Path] = {}
    for path in audio.find(folder):
        if found.setdefault(path.stem, path) != path:
            raise DataError(f"{found[path.stem]} and {path} go by one name; keep one of them")
    return found


def match_names(names: Iterable[str], recordings: Iterable[Path], root: Path) -> dict[str, Path]:
    """Recordings by the names that labels give them; names without a recording are left out.

    A name is looked up as a path below `root`; then by as much of its end as fits a recording, at least the last part;
    then likewise without suffix. What a stricter rule has taken, a looser one does not take again. A name that fits
    several recordings, or two names that fit one, is an error: a guess would put labels on the wrong sound. Last, small
    and capital letters are taken for the same, as on Windows, for names and recordings that fit each other alone.

    >>> found = match_names(["a.wav", "B.mp3", "c.wav"], [Path("d/x/a.wav"), Path("d/b.flac")], Path("d"))
    >>> {name: path.as_posix() for name, path in found.items()}
    {'a.wav': 'd/x/a.wav', 'B.mp3': 'd/b.flac'}
    """
    exact = {name_to_key(name): path for name, path in names_below(recordings, root).items()}
    wanted = {name: name_to_key(name) for name in names}
    found = {name: key for name, key in wanted.items() if key in exact}
    for without_suffix in (False, True):
        if len(found) == len(wanted):
            break
        strict, loose = set(found.values()), dict[str, str]()
        index = _by_ends(exact, without_suffix)
        for name, key in wanted.items():
            if name in found:
                continue
            fits = _fits(key, index, without_suffix)
            fits = [own for own in fits if own.casefold() == key.casefold()] or fits  # its folder in other letters
            if strict.issuperset(fits):
                continue
            if len(fits) > 1:
                raise DataError(
                    f"{name!r} could be any of {len(fits)} recordings: {first_few(fits)}; "
                    f"label it by its path below {root}"
                )
            if fits[0] in loose:
                raise DataError(f"{loose[fits[0]]!r} and {name!r} both mean {exact[fits[0]]}; label it by one name")
            loose[fits[0]], found[name] = name, fits[0]
    left = {name: key for name, key in wanted.items() if name not in found}
    found |= _in_any_case(left, exact, set(found.values())) if left else {}
    return {name: exact[found[name]] for name in wanted if name in found}


def _in_any_case(wanted: Mapping[str, str], keys: Iterable[str], taken: Set[str]) -> dict[str, str]:
    """Keys that names fit but for capital letters; where a name fits several, or several one, none of them."""
    fitting: dict[str, str] = {}
    for without_suffix in (False, True):
        index = _by_ends(keys, without_suffix, str.casefold)
        for name, key in wanted.items():
            fits = _fits(key.casefold(), index, without_suffix)
            if len(fits) == 1 and fits[0] not in taken:
                fitting.setdefault(name, fits[0])
    times = Counter(fitting.values())
    return {name: key for name, key in fitting.items() if times[key] == 1}


def _by_ends(keys: Iterable[str], without_suffix: bool, form: Callable[[str], str] = str) -> dict[str, list[str]]:
    """Keys by everything they end in: "a/b.wav" by "a/b.wav" and "b.wav"."""
    index: dict[str, list[str]] = {}
    for key in keys:
        for end in _ends(form(_stripped(key) if without_suffix else key)):
            index.setdefault(end, []).append(key)
    return index


def _fits(key: str, index: Mapping[str, list[str]], without_suffix: bool) -> list[str]:
    # a name may be given without suffix and yet hold a dot, "owl_30.000_40.000", so first as it is
    for form in (key, _stripped(key)) if without_suffix else (key,):
        for end in _ends(form):
            if end in index:
                return index[end]
    return []


def _ends(key: str) -> Iterator[str]:
    yield key
    while "/" in key:
        _, _, key = key.partition("/")
        yield key


def _stripped(key: str) -> str:
    folder, slash, base = key.rpartition("/")
    stem, dot, _ = base.rpartition(".")
    return folder + slash + stem if dot and stem else key


def split_by_hash(names: Iterable[str]) -> dict[str, str]:
    """Splits for recordings that came without: about 80, 10 and 10 in a hundred, by a hash of the name.

    A name goes to the same split on every machine, and stays there when recordings are added later, so that what was
    for testing is never trained on. Only in folders so small that a split would be empty does a neighbour move into it;
    one or two recordings are all for training.

    >>> sorted(split_by_hash(["a.wav", "b.wav", "c.wav"]).values())
    ['test', 'train', 'validate']
    """
    digests = {name: hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest() for name in names}
    place = {name: int.from_bytes(digest) / 2**64 for name, digest in digests.items()}
    order = sorted(place, key=lambda name: place[name])
    n = len(order)
    if n < 3:
        return dict.fromkeys(place, "train")
    first = min(max(sum(u < 0.8 for u in place.values()), 1), n - 2)
    second = min(max(sum(u < 0.9 for u in place.values()), first + 1), n - 1)
    rank = {name: i for i, name in enumerate(order)}
    return {name: ("train", "validate", "test")[(rank[name] >= first) + (rank[name] >= second)] for name in place}
