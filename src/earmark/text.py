"""Small helpers for text that people read: plurals, lists, numbers, durations."""

import math
from collections.abc import Iterable
from unicodedata import category

__all__ = [
    "as_names",
    "clock_time",
    "compact",
    "counted",
    "duration_text",
    "first_few",
    "listed",
    "percent",
    "plural",
    "printable",
    "visible",
]


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


def as_names(given: str | Iterable[str]) -> tuple[str, ...]:
    """One name, or several; a text is one name, not a list of its letters.

    >>> as_names("dog"), as_names(["dog", "cat"])
    (('dog',), ('dog', 'cat'))
    """
    return (given,) if isinstance(given, str) else tuple(given)


def first_few(names: Iterable[str], most: int = 3) -> str:
    """The first names of a list, for messages.

    >>> first_few(["a.wav", "b.wav", "c.wav", "d.wav"])
    'a.wav, b.wav, c.wav, ...'
    """
    names = list(names)
    if len(names) > most:
        names[most:] = ["..."]
    return ", ".join(names)


def percent(share: float) -> str:
    """A share in per cent, with one decimal where it is small; a dash for NaN.

    >>> percent(0.142), percent(0.0421), percent(0.9), percent(0.0002), percent(float("nan"))
    ('14%', '4.2%', '90%', 'below 0.1%', '–')
    """
    if not math.isfinite(share):
        return "\N{EN DASH}"
    if 0 < share < 0.001:
        return "below 0.1%"
    return f"{100 * share:.{1 if 0 < share < 0.0995 else 0}f}%"


def compact(value: float) -> str:
    """A number >= 0 in about four characters.

    >>> [compact(value) for value in (0, 0.004, 0.25, 9.96, 999, 1234.5, 99_960, 999_600)]
    ['0', '< 0.01', '0.25', '10', '999', '1.2k', '100k', '1.0M']
    """
    for unit, name in ((1_000_000, "M"), (1000, "k")):
        if round(value / unit, 3) >= 1:
            return f"{value / unit:.{1 if value < 9.95 * unit else 0}f}{name}"
    if value >= 9.95:
        return str(round(value))
    return "< 0.01" if 0 < value < 0.01 else f"{value:.2g}"


def duration_text(seconds: float) -> str:
    """A duration in its two largest units.

    >>> [duration_text(seconds) for seconds in (0.25, 59.96, 61, 3600 * 25.5)]
    ['0.2 s', '1 min 0 s', '1 min 1 s', '25 h 30 min']
    """
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return "{} min {} s".format(*divmod(round(seconds), 60))
    return "{:,} h {} min".format(*divmod(round(seconds / 60), 60))


def clock_time(time: float, *, digits: int = 0, hours: bool = True) -> str:
    """A time as h:mm:ss, or as m:ss without hours.

    >>> clock_time(3723.46), clock_time(83.46, digits=1, hours=False)
    ('1:02:03', '1:23.5')
    """
    units = round(time * 10**digits)
    seconds, rest = divmod(units, 10**digits)
    minutes, seconds = divmod(seconds, 60)
    text = f"{minutes // 60}:{minutes % 60:02d}" if hours else str(minutes)
    return f"{text}:{seconds:02d}" + (f".{rest:0{digits}d}" if digits else "")


def visible(text: str) -> str:
    """Text in which control characters and other invisible characters are escaped; line feeds and tabs stay.

    Escaped are terminal controls (C0, C1), marks that change the direction of text, characters without width, and
    undecodable bytes of file names. Joiners stay after letters that are not ASCII: emoji and some scripts need them.

    >>> print(visible("title \\x1b]0;x\\x07, direction \\u202e, width a\\u200bb"))
    title \\x1b]0;x\\x07, direction \\u202e, width a\\u200bb
    """
    if text.isprintable():
        return text
    shown = []
    for before, char in zip(" " + text, text, strict=False):
        is_safe = char.isprintable() or char in "\n\t" or category(char) == "Zs"
        is_joiner = char in "\u200c\u200d" and not before.isascii()
        shown.append(char if is_safe or is_joiner else char.encode("unicode_escape").decode())
    return "".join(shown)


def printable(text: str) -> str:
    """Text as by `visible`, on one line: undecodable bytes are replaced, line feeds and tabs escaped too.

    >>> printable("two\\nlines")
    'two\\\\nlines'
    """
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return visible(text).replace("\n", r"\n").replace("\t", r"\t")
