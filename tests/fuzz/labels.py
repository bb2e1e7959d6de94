"""Label tables in every format: hostile cells, damaged bytes, bombs."""

import gzip
import io
import json
import math
import zipfile
from random import Random
from xml.sax.saxutils import escape

from fuzz.cases import Case, reader, write
from fuzz.mutations import damaged, damaged_json

_CELLS = (
    *("", " ", "0", "1.5", "-1", "nan", "inf", "1e308", "-1e308", "1e400", "0x10", "1_0", "\u0661", "9" * 5000, "true"),
    *("dog", "a,b", '"', "'", "\x00", "\x1b[31m", "=1+1", "é", "\ud800", "../x.wav", "/x.wav", "a\\b.wav", "x" * 5000),
)
_ROWS = {
    "tsv": (["filename", "onset", "offset", "label", "split"], "\t"),
    "csv": (["filename", "onset", "offset", "label", "confidence"], ","),
    "audacity": (["0.5", "1.5", "dog"], "\t"),
    "raven": (["Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Annotation"], "\t"),
    "dcase2017": (["Y1_0.000_10.000.wav", "0.0", "1.0", "Train horn"], "\t"),
}
_SUFFIXES = (".tsv", ".csv", ".txt", ".jams", ".json", ".jsonl", ".tsv.gz", ".csv.gz", ".txt.gz", ".dat")
_USUAL = {"tsv": ".tsv", "csv": ".csv", "audacity": ".txt", "raven": ".txt", "dcase2017": ".txt"}
_JAMS = {
    "file_metadata": {"duration": 10.0, "title": "a"},
    "annotations": [
        {
            "namespace": "scaper",
            "data": [{"time": 1.0, "duration": 2.0, "value": {"label": "dog", "role": "foreground"}, "confidence": 1}],
            "sandbox": {},
        },
        {"namespace": "tag_open", "data": {"time": [0.5], "duration": [1.0], "value": ["dog"], "confidence": [None]}},
    ],
    "sandbox": {},
}
_LINE = {"filename": "a.wav", "onset": 1.0, "offset": 2.0, "label": "dog", "confidence": 0.5, "split": "train"}


@reader
def make(rng: Random) -> Case:
    """A damaged table, in a format that is given or guessed."""
    from earmark.formats import FORMATS

    kind = rng.choice((*_ROWS, "jams", "jsonl", "xlsx"))
    content, note = _content(rng, kind)
    suffix = (
        rng.choice(_SUFFIXES)
        if rng.random() < 0.2
        else {**_USUAL, "jams": ".jams", "jsonl": ".jsonl", "xlsx": ".xlsx"}[kind]
    )
    if suffix.endswith(".gz"):
        content = gzip.compress(content, mtime=0)
        if rng.random() < 0.4:
            content, damage = damaged(rng, content)
            note = f"{note}, compressed, {damage}"
    path = write(f"labels{suffix}", content)
    names = sorted(entry.name for entry in FORMATS)
    format = None if rng.random() < 0.7 else rng.choice(names)
    about, evaluated = f"{kind} as {suffix}, read as {format}: {note}", rng.random() < 0.3
    command = ["evaluate", path.name, path.name]
    return Case(about, lambda: check(path.name, format, evaluated=evaluated), command=command)


def check(path: str, format: str | None, *, evaluated: bool = True) -> None:
    """Read a table; what is accepted must be finite and in order, and can be evaluated."""
    from earmark import evaluate
    from earmark.formats import read_labels

    for row in read_labels(path, format):
        if row.has_times:
            assert math.isfinite(row.onset), f"onset {row.onset}"
            assert math.isfinite(row.offset), f"offset {row.offset}"
            assert 0 <= row.onset <= row.offset, f"{row.onset} to {row.offset}"
        assert row.filename, "no file name"
    if evaluated and format is None:
        evaluate(path, path)


def _content(rng: Random, kind: str) -> tuple[bytes, str]:
    if kind == "jams":
        text, note = damaged_json(rng, _JAMS)
        return text.encode(), note
    if kind == "jsonl":
        text, note = damaged_json(rng, _LINE)
        lines = [json.dumps(_LINE)] * rng.choice((0, 1, 100))
        lines.insert(rng.randint(0, len(lines)), text)
        return "\n".join(lines).encode(), note
    if kind == "xlsx":
        return _workbook(rng)
    content, note = _table(rng, kind)
    if rng.random() < 0.3:
        content, damage = damaged(rng, content)
        note = f"{note}, {damage}"
    encoding = rng.choice(("utf-8",) * 6 + ("utf-16", "utf-8-sig", "latin-1"))
    if encoding != "utf-8":
        content = content.decode(errors="replace").encode(encoding, errors="replace")
    return content, note if encoding == "utf-8" else f"{note}, in {encoding}"


def _workbook(rng: Random) -> tuple[bytes, str]:
    """A workbook with one sheet, which holds a table; its parts or its bytes may be damaged."""
    table, note = _table(rng, "csv")
    rows = [line.split(",") for line in table.decode(errors="replace").splitlines()]
    cell, end = '<c t="inlineStr"><is><t>', "</t></is></c>"
    lines = ["".join(f"{cell}{escape(text)}{end}" for text in row) for row in rows]
    cells = "".join(f"<row>{line}</row>" for line in lines)
    main, office = "http://schemas.openxmlformats.org", "http://schemas.openxmlformats.org/officeDocument/2006"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    link = f'<Relationships xmlns="{main}/package/2006/relationships"><Relationship Id="r" Type="{office}/relationships'
    sheets = f'<workbook xmlns="{main}/spreadsheetml/2006/main" xmlns:r="{office}/relationships"><sheets>'
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{main}/package/2006/content-types">'
        f'<Override PartName="/w.xml" ContentType="{kind}.sheet.main+xml"/>'
        f'<Override PartName="/s.xml" ContentType="{kind}.worksheet+xml"/></Types>',
        "_rels/.rels": f'{link}/officeDocument" Target="w.xml"/></Relationships>',
        "w.xml": f'{sheets}<sheet name="a" sheetId="1" r:id="r"/></sheets></workbook>',
        "_rels/w.xml.rels": f'{link}/worksheet" Target="s.xml"/></Relationships>',
        "s.xml": f'<worksheet xmlns="{main}/spreadsheetml/2006/main"><sheetData>{cells}</sheetData></worksheet>',
    }
    contents = {name: text.encode(errors="replace") for name, text in parts.items()}
    if rng.random() < 0.3:
        name = rng.choice(sorted(contents))
        contents[name], damage = damaged(rng, contents[name])
        note = f"{note}, {name} {damage}"
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    if rng.random() < 0.3:
        content, damage = damaged(rng, data.getvalue())
        return content, f"{note}, {damage}"
    return data.getvalue(), note


def _table(rng: Random, kind: str) -> tuple[bytes, str]:
    """Rows of a valid table, with hostile cells in one of them."""
    heading, separator = _ROWS[kind]
    plain = {"Begin Time (s)": "1.0", "End Time (s)": "2.0", "filename": "a.wav", "onset": "1.0", "offset": "2.0"}
    plain |= {"label": "dog", "Annotation": "dog", "split": "train", "confidence": "0.5"}
    row = [plain.get(name, name if kind in ("audacity", "dcase2017") else "1") for name in heading]
    rows = [list(row) for _ in range(rng.choice((1, 3, 200)))]
    notes = []
    for _ in range(rng.randint(0, 3)):
        number, column, cell = rng.randrange(len(rows)), rng.randrange(len(row)), rng.choice(_CELLS)
        rows[number][column] = cell
        notes.append(f"{heading[column]} = {cell!r:.40}")
    if rng.random() < 0.15:
        rows[-1] = rows[-1][: rng.randrange(len(row))] if rng.random() < 0.5 else rows[-1] * rng.choice((2, 1000))
        notes.append(f"{len(rows[-1])} cells in the last row")
    if kind not in ("audacity", "dcase2017") and rng.random() < 0.9:
        names = rng.choice((heading, heading, heading, heading[::-1], heading[:2], [*heading, *heading]))
        rows.insert(0, names)
        notes.append(f"{len(names)} headings")
    end = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
    return end.join(separator.join(cells) for cells in rows).encode(errors="surrogatepass"), ", ".join(notes)
