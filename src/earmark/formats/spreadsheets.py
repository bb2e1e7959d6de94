"""Tables that may be opened in a spreadsheet, which evaluates cells that look like formulas.

With an apostrophe in front, every spreadsheet treats such a cell as text (OWASP, "CSV injection"). It is removed when a
table is read. A text that already has apostrophes before a formula gets one more, so that every text is preserved:

    written     '=SUM(A1)      ''=SUM(A1)     -2.5     'tis
    read        =SUM(A1)       '=SUM(A1)      -2.5     'tis

Numbers are not changed.
"""

import csv
import re
from collections.abc import Iterable
from typing import IO

# the characters that OWASP names, with their full-width forms, unless the whole is a number
_FORMULA = r"(?![+-][0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?\Z)[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]"
_RISKY = re.compile(rf"'*{_FORMULA}", re.IGNORECASE)
_PROTECTED = re.compile(rf"'+{_FORMULA}", re.IGNORECASE)


def protected(text: str, *, safe: bool = True) -> str:
    """The text with an apostrophe if it looks like a formula; without `safe`, only if it would be misread otherwise.

    >>> [protected(text) for text in ("=1+1", "'=1+1", "owl", "-2.5", "'tis")]
    ["'=1+1", "''=1+1", 'owl', '-2.5', "'tis"]
    >>> [protected(text, safe=False) for text in ("=1+1", "'=1+1")]
    ['=1+1', "''=1+1"]
    """
    pattern = _RISKY if safe else _PROTECTED
    return f"'{text}" if pattern.match(text) else text


def unprotected(text: str) -> str:
    """The text without the apostrophe that `protected` added.

    >>> [unprotected(text) for text in ("'=1+1", "''=1+1", "=1+1", "'tis")]
    ['=1+1', "'=1+1", '=1+1', "'tis"]
    """
    return text[1:] if _PROTECTED.match(text) else text


def write_rows(file: IO[str], rows: Iterable[Iterable[object]], *, safe: bool = True) -> None:
    """Write rows of a table with commas, with texts protected."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([protected(cell, safe=safe) if isinstance(cell, str) else cell for cell in row] for row in rows)
