"""Label files: read and write `LabelTable`s in the formats of other programs.

    table = read_labels("labels.tsv")            # a file, compressed or not, or a folder; the format is guessed
    write_labels(table, "labels.csv", "csv")     # or a folder, for formats with a file per recording

Every format is a `Format` in the registry `FORMATS`: it reads a file into a `LabelTable`, writes one, recognises its
files, and states what it cannot represent. Errors name file and line.

Files, each importing only those before it: `excel` (workbooks), `text` (encodings, cells), `spreadsheets` (formulas in
tables), `base` (the contract), `columns` (headings and layout of tables), the formats `delimited`, `json_lines`,
`jams`, `editors`, `dcase2017`, and `files` (any format).
"""

from earmark.formats.base import FORMATS, Format
from earmark.formats.dcase2017 import DCASE2017
from earmark.formats.delimited import CSV, TSV
from earmark.formats.editors import Audacity, Raven
from earmark.formats.files import guess_format, read_labels, write_labels
from earmark.formats.jams import JAMS
from earmark.formats.json_lines import JSONLines

__all__ = [
    "CSV",
    "DCASE2017",
    "FORMATS",
    "JAMS",
    "TSV",
    "Audacity",
    "Format",
    "JSONLines",
    "Raven",
    "guess_format",
    "read_labels",
    "write_labels",
]
