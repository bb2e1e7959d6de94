#!/usr/bin/env python3
"""Update the tables of documents from their source files: tools/fill_tables.py docs/reproduction.md ...

A table is between two marker lines, the first of which names its source file and its number in that file:

    <!-- table 1: results/urban-sed/published.md -->
    <!-- end of table -->
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"(<!-- table (\d+): (\S+) -->\n)(.*?)(<!-- end of table -->)", re.S)


def table(path: Path, number: int) -> str:
    """A table of a file with its caption and note; the first has number 1."""
    captions = re.split(r"^(?=\*\*)", path.read_text(encoding="utf-8"), flags=re.M)
    return captions[number].strip()


def filled(text: str) -> str:
    """A document with its tables updated."""
    return TABLE.sub(lambda m: f"{m[1]}{table(ROOT / m[3], int(m[2]))}\n{m[5]}", text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        document = Path(name)
        document.write_text(filled(document.read_text(encoding="utf-8")), encoding="utf-8")
