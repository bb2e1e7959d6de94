"""Label files of sound editors: Audacity's label tracks, and selection tables of Raven and BirdNET."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from earmark.annotations import Label, LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, LOST_TIMED, Format, Rows, check_width, only_recording, timed
from earmark.formats.columns import canonical
from earmark.formats.text import check_class, check_name, first_line, number, tab_cells, write_text

_NUMBER = r"\s*\d+(?:[.,]\d*)?(?:[eE][-+]?\d+)?\s*"
_AUDACITY_LINE = re.compile(rf"{_NUMBER}\t{_NUMBER}\t[^\t]+$")
_CONFIDENCE = re.compile(r"\s+\(([01]\.\d\d)\)\Z")
_USUAL = ("annotation", "label", "species", "common_name", "class", "tag", "tags")
_RAVEN_LABELS = (*_USUAL, "call_type", "sound_type", "event")


@FORMATS.register("audacity", "Audacity's label track: onset, offset, label; a file for each recording")
class Audacity(Format):
    r"""Lines `onset <tab> offset <tab> label` in seconds; the file is named after its recording.

    Lines that start with a backslash hold frequencies and are ignored. A point label has offset = onset. An empty file
    is a recording without events. A number in brackets after the label, `dog (0.87)`, is its confidence. URBAN-SED's
    text files have this format.
    """

    suffix = ".txt"
    per_recording = True
    loses = f"{LOST_TIMED}, more than two digits of confidences"

    def _read(self, text: str, rows: Rows) -> None:
        name = rows.add_file(rows.recording)
        for rows.line, cells in tab_cells(text):
            if cells[0].startswith("\\"):
                continue
            if len(cells) == 2:
                cells.append("")
            check_width(cells, 3, " (onset, offset, label)")
            if not cells[2]:
                raise DataError("no label: in Audacity, add one to this region or delete it")
            onset, offset = number(cells[0], "onset"), number(cells[1], "offset")
            if onset is None:
                raise DataError("no onset")
            label, confidence = cells[2], None
            if match := _CONFIDENCE.search(label):
                label, confidence = label[: match.start()], float(match[1])
            rows.add(name, onset, offset, label, True, confidence)

    def write(self, table: LabelTable, path: Path) -> None:
        only_recording(table)
        lines = [f"{onset!r}\t{offset!r}\t{self._text(row)}\n" for row, onset, offset in timed(table, self.name)]
        write_text(path, "".join(lines))

    def _text(self, row: Label) -> str:
        label = check_class(row.label, self.name)
        if _CONFIDENCE.search(label):
            raise DataError(f"{label!r} ends like a confidence, which {self.name} cannot store; rename it")
        return label if row.confidence is None else f"{label} ({row.confidence:.2f})"

    def recognises(self, path: Path, head: str) -> bool:
        return bool(_AUDACITY_LINE.match(first_line(head)))


@FORMATS.register("raven", "Raven's selection table, with Begin File and File Offset; a file for each recording")
class Raven(Format):
    """A tab-separated table with a header row and a line per selection.

    `Begin File` (or `Begin Path`) is the file name where a table has it, and times then count from the start of that
    file by `File Offset (s)`, because `Begin Time (s)` counts from the start of all files opened together. Several
    views or channels of a selection are one event. A table with only a heading is a recording without events. Written
    tables have no frequencies, because labels have none. `label_column` is the heading of the column with the class; by
    default the first present of Annotation, Label, Species, Common Name, Class, Tag, Call Type.
    """

    suffix = ".selections.txt"
    per_recording = True
    loses = LOST_TIMED

    def __init__(self, *, label_column: str | None = None) -> None:
        self.label_column = label_column

    def _read(self, text: str, rows: Rows) -> None:
        lines = tab_cells(text)
        rows.line, headings = next(lines, (None, []))
        if not headings:
            raise DataError("contains no labels, not even a header row")
        header = [canonical(heading) for heading in headings]
        label_column = self._find_label(headings)
        seen: set[tuple[object, ...]] = set()
        files: set[str] = set()
        for rows.line, cells in lines:
            check_width(cells, len(header))
            selection = dict(zip(header, cells, strict=True))
            path = selection.get("begin_file") or selection.get("begin_path") or ""
            begin_file = PurePosixPath(path.replace("\\", "/")).name
            files.add(begin_file)
            if len(files) > 1 and "file_offset" not in selection:
                raise DataError("several Begin Files but no column 'File Offset (s)'")
            onset, offset = _times(selection)
            label = selection[label_column]
            key = (begin_file, selection.get("selection", rows.line), onset, offset, label)
            if key in seen:
                continue  # another view or channel of the same selection
            seen.add(key)
            if not label:
                raise DataError("no label: annotate this selection in Raven or delete it")
            confidence = number(selection.get("confidence", ""), "confidence")
            rows.add(begin_file or rows.recording, onset, offset, label, True, confidence)
        if not files:
            rows.add_file(rows.recording)

    def _find_label(self, headings: list[str]) -> str:
        header = {canonical(heading) for heading in headings}
        listed = ", ".join(headings)
        candidates = _RAVEN_LABELS if self.label_column is None else (canonical(self.label_column),)
        column = next((name for name in candidates if name in header), None)
        if column is None:
            wanted = repr(self.label_column) if self.label_column else "for labels (Annotation, Label, Species, ...)"
            raise DataError(
                f"no column {wanted} in {listed}; name the one with the labels Annotation, or pass it in Python: "
                "Raven(label_column=...)"
            )
        if not {"begin_time", "end_time"} <= header:
            raise DataError(f"no 'Begin Time (s)' and 'End Time (s)' in {listed}")
        return column

    def write(self, table: LabelTable, path: Path) -> None:
        begin_file = check_name(PurePosixPath(only_recording(table)).name, self.name)
        header = ["Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Begin File", "File Offset (s)"]
        with_confidence = any(row.confidence is not None for row in table)
        clock = ["Begin Date", "Begin Clock Time"] if table.began else []
        lines = [[*header, "Annotation", *["Confidence"] * with_confidence, *clock]]
        for selection, (row, onset, offset) in enumerate(timed(table, self.name), 1):
            cells = [str(selection), "Waveform 1", "1", repr(onset), repr(offset), begin_file, repr(onset)]
            cells.append(check_class(row.label, self.name))
            if with_confidence:
                cells.append("" if row.confidence is None else repr(float(row.confidence)))
            lines.append([*cells, *(table.clock(row) if clock else ())])
        write_text(path, "".join("\t".join(cells) + "\n" for cells in lines))

    def recognises(self, path: Path, head: str) -> bool:
        header = {canonical(heading) for heading in first_line(head).split("\t")}
        is_selection = header & {"selection", "view", "low_freq", "low_freq_(hz)"}
        return {"begin_time", "end_time"} <= header and bool(is_selection)


def _times(selection: Mapping[str, str]) -> tuple[float, float]:
    begin = number(selection["begin_time"], "onset (Begin Time)")
    end = number(selection["end_time"], "offset (End Time)")
    if begin is None or end is None:
        raise DataError("no Begin Time or no End Time")
    onset = number(selection.get("file_offset", ""), "onset (File Offset)")
    if onset is None or onset == begin:
        return begin, end
    return onset, onset + (end - begin)
