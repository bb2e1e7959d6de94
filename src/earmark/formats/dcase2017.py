"""The official label files of DCASE 2017 Task 4, with their traps.

- Weak files (`groundtruth_weak_label_*`) have the clip's place in the YouTube video where times should be: the same
  numbers as in the file name. They are labels without times. A file is weak as a whole, because a strong row of a clip
  that begins at 0 may say the same numbers and mean them.
- Strong files (`groundtruth_strong_label_*`) have times from the beginning of the clip; `0 0` means that the class is
  there and nobody could say when.
- `testing_set.csv` joins labels with commas, and two of the labels have one themselves; the machine ids beside them
  have none.
- Some files have CRLF line ends, and all are called .csv though most have tabs.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import DataError, unknown_name
from earmark.formats.base import FORMATS, Format, at_line
from earmark.formats.rows import Rows
from earmark.formats.text import first_line, number, numbered_lines, read_text, sayable_name, write_text

__all__ = ["CLASSES", "DCASE2017"]

_IDS = {
    "/m/0284vy3": "Train horn",
    "/m/05x_td": "Air horn, truck horn",
    "/m/02mfyn": "Car alarm",
    "/m/02rhddq": "Reversing beeps",
    "/m/0199g": "Bicycle",
    "/m/06_fw": "Skateboard",
    "/m/012n7d": "Ambulance (siren)",
    "/m/012ndj": "Fire engine, fire truck (siren)",
    "/m/0dgbq": "Civil defense siren",
    "/m/04qvtq": "Police car (siren)",
    "/m/03qc9zr": "Screaming",
    "/m/0k4j": "Car",
    "/t/dd00134": "Car passing by",
    "/m/01bjv": "Bus",
    "/m/07r04": "Truck",
    "/m/04_sv": "Motorcycle",
    "/m/07jdr": "Train",
}
CLASSES = tuple(_IDS.values())
"""The task's 17 classes, in its order."""

_NAME = re.compile(r".+_(\d+\.\d{3})_(\d+\.\d{3})\.wav")
_GROUND_TRUTH = re.compile(r"[\w-]{11}_\d+\.\d{3}_\d+\.\d{3}\.wav\t[\d.]+\t[\d.]+\t(.+)")
_TESTING_SET = re.compile(r"[\w-]{11},\d+\.\d{3},\d+\.\d{3},.*/[mt]/\w+\"?$")


@FORMATS.register("dcase2017", "DCASE 2017 Task 4's official label files, weak, strong and testing_set.csv")
class DCASE2017(Format):
    """Rows `filename, onset, offset, label` with tabs and without a heading; labels are the task's 17 classes."""

    suffix = ".csv"
    loses = (
        "files without events, absent and unknown classes, confidences, splits, the order of files, and classes other "
        "than the task's (which are refused)"
    )

    def read(self, path: Path) -> LabelTable:
        """Labels in a file."""
        rows = Rows(path)
        rows.classes = CLASSES
        lines = numbered_lines(read_text(path))
        if lines and "\t" not in lines[0][1]:
            for line, text in lines:
                with at_line(path, line):
                    _add_testing_set(rows, text)
            return rows.table()
        table = [(line, text.split("\t")) for line, text in lines]
        is_weak = all(_times_of_name(cells[0]) == tuple(cells[1:3]) for _, cells in table)
        for line, cells in table:
            with at_line(path, line):
                if len(cells) != 4:
                    raise DataError(f"4 columns expected, {len(cells)} found: {' | '.join(cells)}")
                onset, offset = number(cells[1], "onset"), number(cells[2], "offset")
                if is_weak or onset == offset == 0:
                    onset = offset = None
                rows.add(cells[0], onset, offset, _known(cells[3].strip()))
        return rows.table()

    def write(self, table: LabelTable, path: Path) -> None:
        """Write a table as strong rows; labels without times as `0 0`."""
        lines = [
            f"{sayable_name(row.filename, self.name)}\t{_said(row.onset)}\t{_said(row.offset)}\t{_known(row.label)}\n"
            for row in table
            if row.present
        ]
        if not lines:
            raise DataError("dcase2017 has no rows for files without events, and nothing else is in this table")
        write_text(path, "".join(lines))

    def recognises(self, path: Path, head: str) -> bool:
        """File names made of a YouTube id and two times, with a class of the task."""
        first = first_line(head)
        match = _GROUND_TRUTH.fullmatch(first)
        return (match is not None and match[1].strip() in CLASSES) or _TESTING_SET.fullmatch(first) is not None


def _add_testing_set(rows: Rows, text: str) -> None:
    try:
        cells = next(csv.reader([text]))
    except csv.Error as error:
        raise DataError(f"not a line of a table: {error}") from error
    if len(cells) != 5:
        raise DataError(f"5 columns expected (id, start, end, labels, ids), {len(cells)} found: {' | '.join(cells)}")
    video, start, end, _, ids = cells
    for class_id in ids.split(","):
        if class_id not in _IDS:
            raise DataError(f"{class_id!r} is not the id of one of the task's 17 classes")
        rows.add(f"{video}_{start}_{end}.wav", None, None, _IDS[class_id])


def _times_of_name(filename: str) -> tuple[str, ...]:
    match = _NAME.fullmatch(filename)
    return match.groups() if match else ()


def _known(label: str) -> str:
    if label not in CLASSES:
        raise DataError(str(unknown_name("label", label, CLASSES)))
    return label


def _said(time: float | None) -> str:
    text = "0" if time is None else repr(float(time))
    # Never with three decimals, as names have them: a table of nothing but whole clips would be read as weak.
    return text + "0" * (len(text.partition(".")[2]) == 3)
