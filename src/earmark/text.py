"""Small helpers for text that people read: plurals and lists."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["counted", "first_few", "listed", "plural"]


def plural(n: int, noun: str, many: str | None = None) -> str:
    """The noun, or the verb, that goes with a number: singular for 1.

    >>> plural(1, "clip"), plural(0, "clip"), plural(2, "class", "classes"), plural(2, "was", "were")
    ('clip', 'clips', 'classes', 'were')
    """
    if n == 1:
        return noun
    return f"{noun}s" if many is None else many


def counted(n: int, noun: str, many: str | None = None) -> str:
    """A number of things.

    >>> counted(1, "clip"), counted(2000, "clip"), counted(3, "class", "classes")
    ('1 clip', '2,000 clips', '3 classes')
    """
    return f"{n:,} {plural(n, noun, many)}"


def listed(names: Iterable[str]) -> str:
    """Names joined as in a sentence.

    >>> listed(["cap"]), listed(["cap", "rap"]), listed(["cap", "rap", "auto"])
    ('cap', 'cap and rap', 'cap, rap and auto')
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def first_few(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, for messages.

    >>> first_few(["a.wav", "b.wav", "c.wav", "d.wav"])
    'a.wav, b.wav, c.wav, ...'
    """
    names = list(names)
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])
