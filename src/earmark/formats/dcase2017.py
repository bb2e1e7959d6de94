"""The official label files of DCASE 2017 Task 4, with their peculiarities.

- Weak files (`groundtruth_weak_label_*`) have the position of the clip in the YouTube video in place of times: the same
  numbers as in the file name. They are labels without times. A file is weak as a whole or not at all, because in a clip
  that starts at 0, an event may really have these times.
- Strong files (`groundtruth_strong_label_*`) have times from the start of the clip; `0 0` marks a class that is present
  at unknown times.
- `testing_set.csv` joins labels with commas, and two of the labels contain one; the machine ids next to them have none.
- Some files have CRLF line ends, and all are called .csv though most have tabs.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from earmark.annotations import LabelTable
from earmark.errors import DataError, unknown_name
from earmark.formats.base import FORMATS, Format, Rows, check_width
from earmark.formats.text import check_name, first_line, number, numbered_lines, write_text

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
    """Rows `filename, onset, offset, label` with tabs and without a header row; labels are the task's 17 classes.

    Tables are written as strong rows, with `0 0` for labels without times.
    """

    suffix = ".csv"
    loses = (
        "files without events, absent and unknown classes, confidences, splits, the order of files, and classes other "
        "than the task's (which are rejected)"
    )

    def _read(self, text: str, rows: Rows) -> None:
        rows.classes = CLASSES
        if "\t" not in first_line(text):
            for rows.line, line in numbered_lines(text):
                _add_testing_set(rows, line)
            return
        is_weak = all(_has_excerpt(line.split("\t")) for _, line in numbered_lines(text))
        for rows.line, line in numbered_lines(text):
            cells = line.split("\t")
            check_width(cells, 4)
            onset, offset = number(cells[1], "onset"), number(cells[2], "offset")
            if is_weak or onset == offset == 0:
                onset = offset = None
            rows.add(cells[0], onset, offset, _known(cells[3].strip()))

    def write(self, table: LabelTable, path: Path) -> None:
        lines = []
        for row in table:
            if row.present:
                cells = (check_name(row.filename, self.name), _time(row.onset), _time(row.offset), _known(row.label))
                lines.append("\t".join(cells) + "\n")
        if not lines:
            raise DataError("dcase2017 cannot store files without events, and the table has nothing else")
        write_text(path, "".join(lines))

    def recognises(self, path: Path, head: str) -> bool:
        first = first_line(head)
        match = _GROUND_TRUTH.fullmatch(first)
        return (match is not None and match[1].strip() in CLASSES) or _TESTING_SET.fullmatch(first) is not None


def _has_excerpt(cells: Sequence[str]) -> bool:
    """Whether a row has the position of the clip in its video in place of times."""
    match = _NAME.fullmatch(cells[0])
    return match is not None and match.groups() == tuple(cells[1:3])


def _add_testing_set(rows: Rows, text: str) -> None:
    cells = next(csv.reader([text]))
    check_width(cells, 5, " (id, start, end, labels, ids)")
    video, start, end, _, ids = cells
    for class_id in ids.split(","):
        if class_id not in _IDS:
            raise DataError(f"{class_id!r} is not the id of one of the task's 17 classes")
        rows.add(f"{video}_{start}_{end}.wav", None, None, _IDS[class_id])


def _known(label: str) -> str:
    if label not in CLASSES:
        raise DataError(str(unknown_name("label", label, CLASSES)))
    return label


def _time(time: float | None) -> str:
    text = "0" if time is None else repr(float(time))
    # Never three decimals, as in file names: a table of events as long as their clips would be read as weak.
    return text + "0" * (len(text.partition(".")[2]) == 3)
