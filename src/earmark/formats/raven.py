"""Selection tables as Raven saves and opens them, and as BirdNET writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.formats.base import FORMATS, Format, at_line
from earmark.formats.columns import canonical
from earmark.formats.recordings import LOST_TIMED, the_recording, timed
from earmark.formats.rows import Rows
from earmark.formats.text import (
    first_line,
    number,
    numbered_lines,
    read_text,
    sayable,
    sayable_name,
    stem_of,
    write_text,
)

__all__ = ["Raven"]

_LABELS = ("annotation", "label", "species", "common_name", "class", "tag", "tags", "call_type", "sound_type", "event")


@FORMATS.register("raven", "Raven's selection table, with Begin File and File Offset; a file for each recording")
class Raven(Format):
    """A tab-separated table with a heading, a line per selection.

    Where a table says in which file a selection begins (`Begin File` or `Begin Path`), that is its file name, and times
    count from that file's beginning by `File Offset (s)`, because `Begin Time (s)` counts from the beginning of all
    files that were opened together. Several views or channels of a selection are one event. A table with a heading
    alone is a recording without events. Written tables have no frequencies: labels do not say any.

    Parameters
    ----------
    label_column
        Heading of the column with the class; by default the first of Annotation, Label, Species, Common Name, Class,
        Tag, Call Type that there is.
    """

    suffix = ".selections.txt"
    per_recording = True
    loses = LOST_TIMED

    def __init__(self, *, label_column: str | None = None) -> None:
        self.label_column = label_column

    def read(self, path: Path) -> LabelTable:
        """Labels in a file."""
        lines = [(number, line.split("\t")) for number, line in numbered_lines(read_text(path))]
        rows = Rows(path)
        if not lines:
            raise DataError(f"{path}: holds no labels, not even a heading")
        headings = [heading.strip() for heading in lines.pop(0)[1]]
        header = [canonical(heading) for heading in headings]
        with at_line(path, 1):
            label_column = self._find_label(headings)
        seen: set[tuple[object, ...]] = set()
        files: dict[str, None] = {}
        for line, cells in lines:
            with at_line(path, line):
                if len(cells) != len(header):
                    raise DataError(f"{len(header)} columns expected, {len(cells)} found: {' | '.join(cells)}")
                said = dict(zip(header, (cell.strip() for cell in cells), strict=True))
                begin_file = _begin_file(said)
                files.setdefault(begin_file)
                if len(files) > 1 and "file_offset" not in said:
                    raise DataError("several Begin Files, but no column 'File Offset (s)' to say where in them")
                onset, offset = _times(said)
                key = (begin_file, said.get("selection", line), onset, offset, said[label_column])
                if key in seen:
                    continue  # another view or channel of the same selection
                seen.add(key)
                if not said[label_column]:
                    raise DataError("no label: annotate this selection in Raven or delete it")
                confidence = number(said.get("confidence", ""), "confidence")
                rows.add(begin_file or stem_of(path), onset, offset, said[label_column], True, confidence)
        if not files:
            rows.mention(stem_of(path))
        return rows.table()

    def _find_label(self, headings: list[str]) -> str:
        header, written = {canonical(heading) for heading in headings}, ", ".join(headings)
        known = _LABELS if self.label_column is None else (canonical(self.label_column),)
        found = next((name for name in known if name in header), None)
        if found is None:
            wanted = repr(self.label_column) if self.label_column else "for labels (Annotation, Label, Species, ...)"
            raise DataError(
                f"no column {wanted} among {written}; call the one with the labels Annotation, or name it in Python: "
                "Raven(label_column=...)"
            )
        if not {"begin_time", "end_time"} <= header:
            raise DataError(f"no 'Begin Time (s)' and 'End Time (s)' among {written}")
        return found

    def write(self, table: LabelTable, path: Path) -> None:
        """Write the selections of one recording."""
        begin_file = sayable_name(PurePosixPath(the_recording(table)).name, self.name)
        heads = ["Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Begin File", "File Offset (s)"]
        with_confidence = any(row.confidence is not None for row in table)
        lines = [[*heads, "Annotation", *["Confidence"] * with_confidence]]
        for selection, (row, onset, offset) in enumerate(timed(table, self.name), 1):
            cells = [str(selection), "Waveform 1", "1", repr(onset), repr(offset), begin_file, repr(onset)]
            cells.append(sayable(row.label, self.name))
            if with_confidence:
                cells.append("" if row.confidence is None else repr(float(row.confidence)))
            lines.append(cells)
        write_text(path, "".join("\t".join(cells) + "\n" for cells in lines))

    def recognises(self, path: Path, head: str) -> bool:
        """A heading with tabs and Raven's two times."""
        header = {canonical(heading) for heading in first_line(head).split("\t")}
        return {"begin_time", "end_time"} <= header and bool(
            header & {"selection", "view", "low_freq", "low_freq_(hz)"}
        )


def _begin_file(said: Mapping[str, str]) -> str:
    path = said.get("begin_file") or said.get("begin_path") or ""
    return PurePosixPath(path.replace("\\", "/")).name


def _times(said: Mapping[str, str]) -> tuple[float, float]:
    begin, end = number(said["begin_time"], "onset (Begin Time)"), number(said["end_time"], "offset (End Time)")
    if begin is None or end is None:
        raise DataError("no Begin Time or no End Time")
    onset = number(said.get("file_offset", ""), "onset (File Offset)")
    if onset is None or onset == begin:
        return begin, end
    return onset, onset + (end - begin)
