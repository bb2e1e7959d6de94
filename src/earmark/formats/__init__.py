"""Files of labels: one file of this room per format, each reading and writing.

    table = read_labels("labels.tsv")               a file, zipped or not, or a folder of files; the format is guessed
    write_labels(table, "labels.csv", "csv")        or a folder, for formats with a file per recording

Every format is a `Format` in the registry `FORMATS`: it reads a file into a `LabelTable`, writes one, tells its own
files from others', and says what of a table it loses. Errors name file and line.

Files, each importing only those before it: `base` (the contract), `text`, `rows` and `columns` (what flat tables
share), `recordings` (what formats per recording share), then the formats `tsv`, `csv_table`, `json_lines`, `jams`,
`audacity`, `raven`, `dcase2017`, and `files` (the doors).
"""

from earmark.formats.audacity import Audacity
from earmark.formats.base import FORMATS, Format
from earmark.formats.csv_table import CSV
from earmark.formats.dcase2017 import DCASE2017
from earmark.formats.files import guess_format, read_labels, write_labels
from earmark.formats.jams import JAMS
from earmark.formats.json_lines import JSONLines
from earmark.formats.raven import Raven
from earmark.formats.tsv import TSV

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
