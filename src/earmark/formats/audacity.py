"""Label tracks as Audacity exports and imports them."""

from __future__ import annotations

import re
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, at_line
from earmark.formats.recordings import LOST_TIMED, the_recording, timed
from earmark.formats.rows import Rows
from earmark.formats.text import first_line, number, numbered_lines, read_text, sayable, stem_of, write_text

__all__ = ["Audacity"]

_NUMBER = r"\s*\d+(?:[.,]\d*)?(?:[eE][-+]?\d+)?\s*"
_LINE = re.compile(rf"{_NUMBER}\t{_NUMBER}\t[^\t]+$")


@FORMATS.register("audacity", "Audacity's label track: onset, offset, label; a file for each recording")
class Audacity(Format):
    r"""Lines `onset <tab> offset <tab> label` in seconds; the file is called after its recording.

    Lines that begin with a backslash hold frequencies and are left out. A label at a point has offset = onset. An empty
    file is a recording without events. URBAN-SED's text files are the same.
    """

    suffix = ".txt"
    per_recording = True
    loses = f"{LOST_TIMED}, confidences"

    def read(self, path: Path) -> LabelTable:
        """Labels in a file."""
        rows = Rows(path)
        name = rows.mention(stem_of(path))
        for line_number, line in numbered_lines(read_text(path)):
            if line.startswith("\\"):
                continue
            with at_line(path, line_number):
                cells = line.split("\t")
                if len(cells) not in (2, 3):
                    raise DataError(
                        f"3 columns expected (onset, offset, label), {len(cells)} found: {' | '.join(cells)}"
                    )
                label = cells[2].strip() if len(cells) == 3 else ""
                if not label:
                    raise DataError("no label: in Audacity, write one into this region or delete it")
                onset, offset = number(cells[0], "onset"), number(cells[1], "offset")
                if onset is None:
                    raise DataError("no onset")
                rows.add(name, onset, offset, label)
        return rows.table()

    def write(self, table: LabelTable, path: Path) -> None:
        """Write the labels of one recording."""
        the_recording(table)
        lines = [
            f"{onset!r}\t{offset!r}\t{sayable(row.label, self.name)}\n"
            for row, onset, offset in timed(table, self.name)
        ]
        write_text(path, "".join(lines))

    def recognises(self, path: Path, head: str) -> bool:
        """Two numbers and a word, from the first line on."""
        return bool(_LINE.match(first_line(head)))
