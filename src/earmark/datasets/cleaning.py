"""Labels as people write them: several in one cell, in two spellings, or `none` for nothing.

    table, notes = clean_labels(table)                    cleaned labels, and a note on each kind of change
    table, notes = read_clean_labels("labels.csv")        the same, of a file
    table, notes = match_spellings(table, classes)        labels in the spelling of a model's classes

Only clear cases are changed: `crow;dog` is two labels only where `crow` and `dog` are labels elsewhere, or
where a separator is given. Otherwise training rejects names that are probably several labels (`refuse_joined`).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from earmark.annotations import Label, LabelTable
from earmark.datasets.base import Collection
from earmark.errors import ArgumentError, DataError, similar_name
from earmark.formats import read_labels
from earmark.text import counted, first_few, plural

SEPARATORS: Mapping[str, str] = {
    "semicolon": ";",
    "comma": ",",
    "pipe": "|",
    "slash": "/",
    "plus": "+",
    "ampersand": "&",
    "colon": ":",
    "none": "",
}
"""Names of separators, for `folder,separator=semicolon:PATH`; `none` means that a cell has one label."""

_USUAL = (";", "|", ",", "+", "/", "&")  # tried where no separator is given
_RARE, _FREQUENT = 2, 3  # a typing error is in at most 2 recordings; the correct name in at least 3 times as many
_SHORTEST = 4  # letters; shorter names are not compared
NOTHING = ("-", "n/a", "na", "nan", "no call", "nocall", "none", "nothing", "empty", "no event", "no events")
"""Labels that mean "nothing", as `plain` gives them, with spaces for underscores."""


def separator_of(name: str) -> str:
    """A separator by its name, or the character itself.

    >>> separator_of("semicolon"), separator_of(";")
    (';', ';')
    """
    text = SEPARATORS.get(name.strip().lower(), name.strip())
    if len(text) > 1 or text.isalnum():
        raise ArgumentError(f"separator: expected one of {', '.join(SEPARATORS)}, or such a character, got {name!r}")
    return text


def clean_labels(
    table: LabelTable, separator: str | None = None, *, known: Iterable[str] = ()
) -> tuple[LabelTable, tuple[str, ...]]:
    """Split cells with several labels, merge spellings, and drop labels that mean "nothing"; with notes.

    `separator` is the character between labels in a cell; by default a cell is split where all parts are labels
    elsewhere, and with an empty one never. `known` are labels of other tables; their spellings are used.

    >>> rows = [("a.wav", None, None, "crow;Dog"), ("b.wav", None, None, "crow"), ("c.wav", None, None, "dog")]
    >>> cleaned, notes = clean_labels(LabelTable([*rows, ("d.wav", None, None, "none")]))
    >>> cleaned.classes, cleaned.filenames
    (('crow', 'dog'), ('a.wav', 'b.wav', 'c.wav', 'd.wav'))
    >>> print(*notes, sep="\\n")
    1 cell with several labels was divided: 'crow;Dog'
    labels that differ only in case or spaces are one class: 'Dog' is 'dog'
    1 label that means "nothing" ('none') was dropped: its recording counts as empty
    """
    notes: list[str] = []
    known = tuple(known)
    table, cells = _divided(table, separator, known)
    if cells:
        n = cells.total()
        what = f"{counted(n, 'cell')} with several labels {plural(n, 'was', 'were')} divided"
        notes.append(f"{what}: {first_few(map(repr, cells))}")
    spellings = _spellings(table, known)
    if spellings:
        table, note = _merged(table, spellings)
        notes.append(note)
    table, dropped = _without_nothing(table, known)
    if dropped:
        n, names = dropped.total(), ", ".join(map(repr, dropped))
        what = f'{counted(n, "label")} that {plural(n, "means", "mean")} "nothing" ({names})'
        whose = plural(n, "its recording counts", "their recordings count")
        notes.append(f"{what} {plural(n, 'was', 'were')} dropped: {whose} as empty")
    return table, (*notes, *_possible_typos(table))


def read_clean_labels(
    path: str | Path, separator: str | None = None, *, known: Iterable[str] = (), may_be_empty: bool = False
) -> tuple[LabelTable, tuple[str, ...]]:
    """Read a file or folder of labels and clean them, see `clean_labels`; notes begin with its name."""
    table = read_labels(path, may_be_empty=may_be_empty)
    try:
        table, notes = clean_labels(table, separator, known=known)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return table, tuple(f"{Path(path).name}: {note}" for note in notes)


def match_spellings(table: LabelTable, classes: Iterable[str]) -> tuple[LabelTable, tuple[str, ...]]:
    """Labels that differ from one of `classes` only in case or spaces, renamed to it; with a note.

    >>> table, notes = match_spellings(LabelTable([("a.wav", 0, 1, "dog"), ("a.wav", 2, 3, "Owl")]), ["Dog", "crow"])
    >>> table.classes, *notes
    (('Dog', 'Owl'), "labels that differ only in case or spaces are one class: 'dog' is 'Dog'")
    """
    classes = tuple(classes)
    known = by_spelling(classes)
    matches = {label: known.get(plain(label), []) for label in table.classes if label not in classes}
    spellings = {label: names[0] for label, names in matches.items() if len(names) == 1}
    if not spellings:
        return table, ()
    table, note = _merged(table, spellings)
    return table, (note,)


def refuse_joined(data: Collection) -> None:
    """Reject class names that are probably several labels, unless the user stated the separator of labels."""
    classes = data.classes if data.separator is None else ()
    for name in classes:
        for separator in (";", "|", ","):
            parts = [part.strip() for part in name.split(separator)]
            unknown = [part for part in parts if part not in classes]
            is_certain = separator != "," or len(unknown) < len(parts)
            if len(parts) > 1 and all(parts) and is_certain:
                others = {part.strip() for label in classes for part in label.split(separator)}
                close = similar_name(unknown[0], sorted(others - {unknown[0]})) if unknown else None
                similar = f" (a similar name is {close!r})" if close else ""
                only = f", although {unknown[0]!r} occurs nowhere else{similar}" if unknown else ""
                raise DataError(
                    f"class {name!r} may be several labels in one cell{only}; for several labels, pass --separator "
                    f"{separator!r}; for one name, pass --separator none (in Python, pass "
                    f"earmark.datasets.with_separator(data, {separator!r}) as the data)"
                )


def _divided(table: LabelTable, separator: str | None, others: Iterable[str]) -> tuple[LabelTable, Counter[str]]:
    """The table with a row for each label of a cell, and the cells that were divided."""
    if separator == "":
        return table, Counter()
    known = {plain(label) for label in (*table.classes, *others)}
    parts_of: dict[str, list[str]] = {}
    for label in table.classes:
        for char in _USUAL if separator is None else (separator,):
            parts = [part.strip() for part in label.split(char)]
            is_known = separator is not None or all(plain(part) in known for part in parts)
            if len(parts) > 1 and all(parts) and is_known:
                parts_of[label] = parts
                break
    cells = Counter(row.label for row in table if row.label in parts_of)
    if cells:
        table = _renamed(table, lambda label: parts_of.get(label, [label]))
    return table, cells


def plain(label: str) -> str:
    """A label in lower case, with single spaces.

    >>> plain("Wood_Pigeon"), plain(" wood  pigeon")
    ('wood_pigeon', 'wood pigeon')
    """
    return " ".join(label.split()).casefold()


def by_spelling(labels: Iterable[str]) -> dict[str, list[str]]:
    """Groups of labels that differ only in case or spaces, by their plain form."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(plain(label), []).append(label)
    return groups


def _spellings(table: LabelTable, known: Iterable[str]) -> dict[str, str]:
    """The known spelling of each label that has several, or the most frequent one; of equals, the plainest."""
    frequency = Counter(row.label for row in table)

    def rank(label: str) -> tuple[int, bool, bool, str]:
        return -frequency[label], label.casefold() != plain(label), label != label.lower(), label

    best = {key: min(labels, key=rank) for key, labels in by_spelling(table.classes).items()} | {
        plain(label): label for label in known
    }
    return {label: best[plain(label)] for label in table.classes if label != best[plain(label)]}


def _merged(table: LabelTable, spellings: Mapping[str, str]) -> tuple[LabelTable, str]:
    """The table with other spellings, and a note on them."""
    pairs = (f"{old!r} is {new!r}" for old, new in spellings.items())
    note = f"labels that differ only in case or spaces are one class: {first_few(pairs)}"
    return _renamed(table, lambda label: [spellings.get(label, label)]), note


def _possible_typos(table: LabelTable) -> list[str]:
    """A note for each rare label that differs from a frequent one by one letter; none is changed."""
    present = {(row.filename, row.label) for row in table if row.present}
    recordings = Counter(label for _, label in present)
    notes = []
    for rare in table.classes:
        n = recordings[rare]
        frequent = [label for label in table.classes if recordings[label] >= _FREQUENT * n]
        close = next((label for label in frequent if is_one_letter_off(plain(rare), plain(label))), None)
        if 0 < n <= _RARE and close is not None:
            what = f"class {rare!r} ({counted(n, 'recording')}) is spelled almost like {close!r} ({recordings[close]})"
            notes.append(f"{what}: if it is a typing error, correct the labels")
    return notes


def is_one_letter_off(one: str, other: str) -> bool:
    """Whether two names differ by a letter that is missing, added, replaced or swapped with the next; not if short.

    >>> is_one_letter_off("sirn", "siren"), is_one_letter_off("brak", "bark")
    (True, True)
    >>> is_one_letter_off("call 1", "call 2"), is_one_letter_off("owl", "fowl"), is_one_letter_off("bark", "bark")
    (False, False, False)
    """
    if min(len(one), len(other)) < _SHORTEST or abs(len(one) - len(other)) > 1 or one == other:
        return False
    first = _n_shared(one, other)
    a, b = one[first:], other[first:]
    last = _n_shared(a[::-1], b[::-1])
    a, b = a[: len(a) - last], b[: len(b) - last]
    return (a + b).isalpha() and (max(len(a), len(b)) == 1 or (len(a) == 2 and a == b[::-1]))


def _n_shared(one: str, other: str) -> int:
    """The number of characters at the beginning that two texts share."""
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _without_nothing(table: LabelTable, known: Sequence[str]) -> tuple[LabelTable, Counter[str]]:
    """The table without labels such as `none`, whose recordings have none of the classes, and the labels dropped.

    It is an error if no label is left, unless there are `known` ones.
    """
    empty = {label for label in table.classes if plain(label).replace("_", " ") in NOTHING}
    marks = [row for row in table if row.label in empty and row.present]
    dropped = Counter(row.label for row in marks)
    if not empty:
        return table, dropped
    classes = tuple(label for label in table.classes if label not in empty)
    if not (classes or known):
        raise DataError(f"the only label is {table.classes[0]!r}, which means that there is nothing to learn")
    rows = [row for row in table if row.label not in empty]
    if not table.complete:  # a class without a row is unknown, but here it is absent
        stated = {(row.filename, row.label) for row in rows}
        absent = (Label(row.filename, row.onset, row.offset, label, False) for row in marks for label in classes)
        rows += dict.fromkeys(row for row in absent if (row.filename, row.label) not in stated)
    return table.replace(rows=rows, classes=classes), dropped


def _renamed(table: LabelTable, names: Callable[[str], list[str]]) -> LabelTable:
    """The table with other labels; what becomes the same is kept once, and present wins over absent and unknown.

    Where a class has times, intervals without it stay, and so does the statement that it is unknown elsewhere.
    """
    renamed = (row._replace(label=name) for row in table for name in names(row.label))
    rows = list(dict.fromkeys(renamed))
    present = {(row.filename, row.label) for row in rows if row.present}
    somewhere = {(row.filename, row.label) for row in rows if row.present and not row.has_times}

    def is_overruled(row: Label) -> bool:
        stronger = somewhere if row.present is None else present
        return not row.present and not row.has_times and (row.filename, row.label) in stronger

    rows = [row for row in rows if not is_overruled(row)]
    classes = dict.fromkeys(name for label in table.classes for name in names(label))
    is_sorted = list(table.classes) == sorted(table.classes)
    return table.replace(rows=rows, classes=tuple(sorted(classes) if is_sorted else classes))
