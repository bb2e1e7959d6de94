"""Label formats, tested as a family: a format enters by being registered. Then each one's own ways, and real files."""

import csv
import errno
import gzip
import inspect
import json
import os
import re
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import earmark.formats
from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.formats import FORMATS, Raven, guess_format, read_labels, write_labels
from earmark.formats.dcase2017 import CLASSES

NAMES = [entry.name for entry in FORMATS]
FLAT = ["tsv", "csv", "json"]
each = pytest.mark.parametrize("name", NAMES)

STRONG = LabelTable(
    [
        ("PNaLTW50fxM_60.000_70.000.wav", 0.1, 0.30000000000000004, "Car"),
        ("PNaLTW50fxM_60.000_70.000.wav", 0.0, 9.5, "Air horn, truck horn"),
        ("WdubBeFntYQ_460.000_470.000.wav", 2.0, 2.0, "Car"),
        ("kr8ssbrDDMY_0.000_7.125.wav", 0.0, 7.125, "Train"),
    ]
)
BAD_TIMES = [
    ("2", "1", "ends before it begins: onset 2.0, offset 1.0"),
    ("-1", "1", "begins before the file: onset -1.0"),
    ("nan", "1", "expected finite times"),
    ("0", "inf", "expected finite times"),
    ("one", "2", "onset.* is not a number: 'one'"),
    ("1", "1_0", "offset.* is not a number: '1_0'"),
    ("0:01.5", "2", "onset.* is not a number: '0:01.5'; write seconds, as in 1.5"),
    ("", "2", "no onset|expected both|no Begin Time"),
]
TEMPLATES = {
    "tsv": "filename\tonset\toffset\tevent_label\na.wav\t0\t1\tCar\na.wav\t{}\t{}\tCar\n",
    "csv": "filename,onset,offset,label\na.wav,0,1,Car\na.wav,{},{},Car\n",
    "audacity": "0\t1\tCar\n\n{}\t{}\tCar\n",
    "raven": "Selection\tBegin Time (s)\tEnd Time (s)\tSpecies\n1\t0\t1\tCar\n2\t{}\t{}\tCar\n",
    "dcase2017": "a.wav\t1\t2\tCar\na.wav\t1\t2\tBus\na.wav\t{}\t{}\tCar\n",
}


def lines(text):
    return text.replace("|", "\t").replace("/", "\n")


def put(folder, name, text, **options):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, newline="", **options)
    return path


def rows_of(table):
    return [tuple(row) for row in table]


def surviving(name, table):
    """What of a table is left after a format has lost what it says it loses; nothing lost unless named here."""
    if name in FLAT:
        return LabelTable(table, filenames=table.filenames, complete=table.complete, splits=table.splits)
    present = [row for row in table if row.present]
    if name == "audacity":
        present = [row._replace(confidence=row.confidence and float(f"{row.confidence:.2f}")) for row in present]
    if name == "dcase2017":
        present = [row._replace(confidence=None) for row in present]
    if name == "dcase2017":
        return LabelTable(present, classes=CLASSES)
    if name in ("audacity", "jams", "raven"):
        with_events = {row.filename for row in present}
        # Raven's tables name their file, if they have a line to name it in.
        keep = with_events if name == "raven" else ()
        names = {f: f if f in keep else re.sub(r"\.wav$", "", f) for f in table.filenames}
        return LabelTable([r._replace(filename=names[r.filename]) for r in present], filenames=names.values())
    return table


def settled(table):
    """Without the order of files and rows, for formats that keep a file per recording."""
    key = lambda row: (row.filename, row.onset is None, row.onset or 0, row.offset or 0, row.label)  # noqa: E731
    return LabelTable(sorted(table, key=key), filenames=sorted(table.filenames), complete=table.complete)


def weak(table):
    """Without times: one row for each class of a file."""
    return table.replace(rows=dict.fromkeys(row._replace(onset=None, offset=None, confidence=None) for row in table))


def assert_survives(name, table, folder):
    """Written and read again, a table is the same up to what the format loses."""
    entry = FORMATS[name]
    path = folder / "labels" if entry.cls.per_recording else folder / f"labels{entry.cls.suffix}"
    written = write_labels(table, path, name)
    found, expected = read_labels(path, name), surviving(name, table)
    if entry.cls.per_recording:
        found, expected = settled(found), settled(expected)
    if name == "jams":  # which adds durations to onsets
        times = [[(row.onset or 0, row.offset or 0) for row in table] for table in (found, expected)]
        np.testing.assert_allclose(*times, rtol=1e-15)
        found, expected = ([row._replace(offset=None) for row in table] for table in (found, expected))
    assert found == expected
    return written


@each
def test_a_format_says_what_it_is(name):
    entry = FORMATS[name]
    assert entry.cls.suffix.startswith(".")
    assert "\n" not in entry.summary
    assert entry.cls.__doc__
    assert isinstance(entry.cls.loses, str)
    assert not inspect.isabstract(entry.cls)


def test_the_names_are_those_of_the_command_line():
    assert set(NAMES) == {"tsv", "csv", "json", "jams", "audacity", "raven", "dcase2017"}
    with pytest.raises(ArgumentError, match="format='tvs' is not known; did you mean 'tsv'"):
        read_labels("labels.tsv", "tvs")


@each
def test_what_is_written_is_read_and_recognised(name, tmp_path):
    for path in assert_survives(name, STRONG, tmp_path):
        assert guess_format(path) == name
    place = tmp_path / "labels" if FORMATS[name].cls.per_recording else tmp_path
    assert weak(settled(read_labels(place))) == weak(settled(surviving(name, STRONG)))


@each
def test_zipped_files_are_read(name, tmp_path):
    table = STRONG.select(STRONG.filenames[:1])
    (path,) = write_labels(table, tmp_path / "x" / f"labels{FORMATS[name].cls.suffix}", name)
    zipped = tmp_path / f"{path.name}.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read_labels(zipped) == read_labels(path, name)


@each
def test_line_ends_of_other_systems_are_read(name, tmp_path):
    table = STRONG.select(STRONG.filenames[:1])
    (path,) = write_labels(table, tmp_path / "x" / f"labels{FORMATS[name].cls.suffix}", name)
    other = tmp_path / path.name
    for end in (b"\r\n", b"\r"):
        other.write_bytes(path.read_bytes().replace(b"\n", end))
        assert read_labels(other) == read_labels(path)


@each
def test_a_failed_write_leaves_the_old_labels_and_nothing_else(name, tmp_path, monkeypatch):
    place = tmp_path / "labels"
    old = write_labels(STRONG, place, name)
    before = {path: path.read_bytes() for path in old}

    def broken(*_):
        raise OSError(errno.ENOSPC, "disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken)
        with pytest.raises(OSError, match="disk is full"):
            write_labels(weak(STRONG) if name in FLAT else STRONG.select(STRONG.filenames[:1]), place, name)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@each
def test_labels_that_cannot_be_written_leave_nothing_behind(name, tmp_path):
    table = LabelTable([*STRONG, ("last.wav", 0.0, 1.0, "Bus\ud800")])
    with pytest.raises(DataError, match=r"has control characters or undecodable bytes|label='Bus"):
        write_labels(table, tmp_path / "labels", name)
    assert list(tmp_path.iterdir()) == []


@each
def test_files_that_are_not_labels(name, tmp_path):
    with pytest.raises(DataError, match=r"a.wav: expected labels as text, got binary data"):
        read_labels(put(tmp_path, "a.wav", "RIFF\0\0\0"), name)
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        read_labels(tmp_path / "none", name)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"something")[:-4])
    with pytest.raises(DataError, match=r"cut.gz: cannot be read"):
        read_labels(tmp_path / "cut.gz", name)
    empty = put(tmp_path, "night.txt", "\n")
    if name == "audacity":
        assert read_labels(empty, name) == LabelTable(filenames=["night"])
    else:
        with pytest.raises(DataError, match=r"night.txt: (contains no labels|not a JAMS document)"):
            read_labels(empty, name)


@each
def test_nothing_to_write(name, tmp_path):
    with pytest.raises(DataError, match=r"table without files|nothing else"):
        write_labels(LabelTable(), tmp_path / "x", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize(("onset", "offset", "message"), BAD_TIMES)
def test_bad_times_are_refused_with_file_and_line(name, onset, offset, message, tmp_path):
    path = put(tmp_path, "labels.txt", TEMPLATES[name].format(onset, offset))
    with pytest.raises(DataError, match=rf"labels\.txt:3: .*({message})"):
        read_labels(path, name)


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
kept = words.filter(lambda s: s == s.strip() and "\\" not in s and "\0" not in s)
labelled = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=12).filter(
    lambda s: s == s.strip()
)
taglike = st.sampled_from(["Air horn, truck horn", 'say "hi"', "ça", "a;b|c", "?", "0", "label", "filename", "=1+1"])
seconds = st.floats(0, 1e6, allow_subnormal=False)
spans = st.one_of(st.none(), st.tuples(seconds, seconds).map(sorted))


@st.composite
def tables(draw, text=kept):
    """Any table: names of all sorts, labels with and without times, absent, unknown, in whatever order."""
    files = draw(st.lists(text | taglike, min_size=1, max_size=5, unique=True))
    labels = draw(st.lists(labelled | taglike, min_size=1, max_size=4, unique=True))
    verdict = {(f, c): draw(st.sampled_from([True, True, False, None])) for f in files for c in labels}
    rows = []
    for f, c in draw(st.lists(st.sampled_from(sorted(verdict)), max_size=12)):
        span = draw(spans) if verdict[f, c] else None
        confidence = draw(st.none() | st.floats(0, 1))
        rows.append(Label(f, *(span or (None, None)), c, verdict[f, c], confidence))
    splits = {f: draw(st.sampled_from(["train", "test"])) for f in files if draw(st.booleans())}
    return LabelTable(rows, filenames=draw(st.permutations(files)), complete=draw(st.booleans()), splits=splits)


@pytest.mark.parametrize("name", FLAT)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_table_survives_flat_formats(name, data):
    plain = kept.filter(lambda s: not set(s) & set("\t\n\r"))
    names = {
        "tsv": plain,
        "csv": kept.filter(lambda s: "\r" not in s),
        "json": words.filter(lambda s: not set(s) & set("\\\0")),
    }
    table = data.draw(tables(names[name]))
    with tempfile.TemporaryDirectory() as folder:
        assert_survives(name, table, Path(folder))
        path = Path(folder) / f"labels{FORMATS[name].cls.suffix}"
        assert guess_format(path) == name


@pytest.mark.parametrize("name", ["jams", "audacity", "raven"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_events_survive_formats_per_recording(name, data):
    simple = st.text("abcé .-_", min_size=1, max_size=6).filter(lambda s: s == s.strip() and s.strip("."))
    table = data.draw(tables(simple))
    rows = [row for row in table if row.has_times or not row.present or name == "jams"]
    names = {f: f"f{i}/{re.sub(r'[^abcé]', '_', f)}.wav" for i, f in enumerate(table.filenames)}
    with tempfile.TemporaryDirectory() as folder:
        assert_survives(name, LabelTable(rows, filenames=table.filenames).renamed(names), Path(folder))


def test_names_that_a_format_cannot_keep(tmp_path):
    def refused(name, table, message):
        with pytest.raises(DataError, match=message):
            write_labels(table, tmp_path / "x", name)
        assert not (tmp_path / "x").exists()

    def labelled(label, file="a.wav"):
        return LabelTable([(file, 0.0, 1.0, label)])

    for name in (*FLAT, "audacity", "jams", "raven"):
        for label in ("a\tb", "a\nb", "a\rb", "a\0b", "a\x1b[2Jb", "a\x85b"):
            refused(name, labelled(label), f"class name {re.escape(repr(label))} has control characters")
        refused(name, labelled(" a"), f"' a' starts or ends with white space, which {name} cannot store")
        refused(name, labelled("a\u3000"), f"starts or ends with white space, which {name} cannot store")
    refused("tsv", labelled("a", file="a\tb.wav"), r"'a\\tb.wav' has a character that tsv cannot store")
    refused("csv", labelled("a", file=" a.wav"), "white space")
    refused("csv", labelled("a", file="a\rb.wav"), "cannot store")
    for name in (*FLAT, "jams"):
        refused(name, labelled("a", file="a\0b.wav"), "NUL character|is not a path below a folder")
    for name in (*FLAT, "raven", "dcase2017"):
        refused(name, labelled("Car", file="a\\b.wav"), "has a backslash")
    for name in ("audacity", "raven"):
        refused(name, LabelTable([("a", None, None, "x")]), f"a: 'x' has no times, which {name} requires")
    refused("dcase2017", labelled("Carr"), "label='Carr' is not known")


def test_labels_of_one_recording_go_into_one_file(tmp_path):
    with pytest.raises(ArgumentError, match="expected labels of one recording, got 3; write_labels writes a folder"):
        FORMATS.create("audacity").write(STRONG, tmp_path / "x.txt")
    put(tmp_path, "file", "")
    with pytest.raises(ArgumentError, match="file is a file; audacity needs a folder"):
        write_labels(STRONG, tmp_path / "file", "audacity")


def test_recordings_that_would_share_a_label_file(tmp_path):
    table = LabelTable(filenames=["x/a.wav", "y/a.wav", "x/a.flac"])
    with pytest.raises(DataError, match=r"'x/a.wav' and 'x/a.flac' would share the label file 'x/a.txt'"):
        write_labels(table, tmp_path / "x", "audacity")
    for name in ("../a.wav", "/a.wav", "a/"):
        with pytest.raises(DataError, match="is not a path below a folder"):
            write_labels(LabelTable(filenames=[name]), tmp_path / "x", "jams")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_label_files_is_one_table(tmp_path):
    put(tmp_path, "night/a_30.000_40.000.txt", "1\t2\tdog\n")
    put(tmp_path, "b.txt", "0\t1\tcat\n")
    put(tmp_path, "silent.txt", "")
    put(tmp_path, "b.wav", "sound")
    put(tmp_path, ".hidden.txt", "nothing")
    table = read_labels(tmp_path)
    assert table.filenames == ("b", "night/a_30.000_40.000", "silent")
    assert rows_of(table)[1][:4] == ("night/a_30.000_40.000", 1.0, 2.0, "dog")
    assert read_labels(tmp_path, "audacity") == table
    put(tmp_path, "b.jams", '{"annotations": [], "file_metadata": {"duration": 1}}')
    with pytest.raises(DataError, match=r"one format, got jams \(1 files\), audacity \(2 files\)"):
        read_labels(tmp_path)
    assert read_labels(tmp_path, "jams").filenames == ("b",)
    with pytest.raises(DataError, match="contains no labels"):
        read_labels(tmp_path / "silent.txt")
    with pytest.raises(DataError, match="x: no label files in this folder"):
        read_labels(put(tmp_path, "x/a.wav", "").parent)
    with pytest.raises(DataError, match="got only empty files"):
        read_labels(put(tmp_path, "y/a.txt", "").parent)


def test_the_folder_of_a_detection_job_says_which_file_to_give(tmp_path):
    events = put(tmp_path, "job/events.csv", "filename,onset,offset,label\na.wav,0,1,dog\n")
    put(tmp_path, "job/job.json", "{}")
    put(tmp_path, "job/ledger.sqlite", "")
    with pytest.raises(DataError, match=f"job: is the folder of a detection job; .* {re.escape(str(events))}"):
        read_labels(tmp_path / "job")
    assert read_labels(tmp_path / "job", "csv") == read_labels(events)


def test_a_folder_of_tables_keeps_their_file_names_and_classes(tmp_path):
    put(tmp_path, "one.csv", "file,dog,cat\na.wav,1,0\n")
    put(tmp_path, "two.csv", "file,bat,split\nb.wav,,train\n")
    table = read_labels(tmp_path)
    assert table.filenames == ("a.wav", "b.wav")
    assert table.classes == ("dog", "cat", "bat")
    assert not table.complete
    assert table.splits == {"b.wav": "train"}


def test_a_file_that_nobody_recognises(tmp_path):
    with pytest.raises(
        DataError, match=r"a.txt: not a known label format; .* filename,onset,offset,label;.*: .*csv.*tsv"
    ):
        read_labels(put(tmp_path, "a.txt", "All rights reserved\n"))


def test_encodings(tmp_path):
    text = "filename,label\né.wav,ça\n"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        table = read_labels(put(tmp_path, "a.csv", text, encoding=encoding))
        assert rows_of(table)[0][:4] == ("é.wav", None, None, "ça")
    path = put(tmp_path, "a.csv", text, encoding="latin-1")
    with pytest.warns(UserWarning, match=r"a.csv:2: not UTF-8; read as Latin-1"):
        assert read_labels(path, "csv") == table


def test_zipped_files_are_written(tmp_path):
    (path,) = write_labels(STRONG, tmp_path / "labels.tsv.gz", "tsv")
    assert path.read_bytes().startswith(b"\x1f\x8b")
    assert read_labels(path) == STRONG


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("filename|onset|offset|event_label/a.wav|0|1.5|dog/b.wav|||/", [("a.wav", 0, 1.5, "dog")]),
        ("a.wav|0|1.5|dog/b.wav/", [("a.wav", 0, 1.5, "dog")]),
        ("b.wav/a.wav|0|1.5|dog", [("a.wav", 0, 1.5, "dog")]),
        ("event_label|offset|filename|onset/dog|1.5|a.wav|0/||b.wav|", [("a.wav", 0, 1.5, "dog")]),
        ("filename|event_labels/a.wav|cat,dog/b.wav|/", [("a.wav", None, None, "cat"), ("a.wav", None, None, "dog")]),
        ("a.wav|cat, dog/b.wav|", [("a.wav", None, None, "cat"), ("a.wav", None, None, "dog")]),
        ("a.wav|street|0|1.5|dog/b.wav|street|||", [("a.wav", 0, 1.5, "dog")]),
        ("filename|scene|onset|offset|label/a.wav|street|0|1.5|dog/b.wav", [("a.wav", 0, 1.5, "dog")]),
        ("filename|onset|offset|label/a.wav|||dog|/b.wav", [("a.wav", None, None, "dog")]),
        ("a.wav|||event/b.wav", [("a.wav", None, None, "event")]),
        ("filename|label|present/a.wav|dog|no/b.wav||", [("a.wav", None, None, "dog", False)]),
        ("filename|label|present|confidence/a.wav|dog|1|.5/b.wav|||", [("a.wav", None, None, "dog", True, 0.5)]),
    ],
)
def test_tsv_as_it_is_found(text, expected, tmp_path):
    table = read_labels(put(tmp_path, "labels.tsv", lines(text)))
    assert list(table) == [Label(*row) for row in expected]
    assert sorted(table.filenames) == ["a.wav", "b.wav"]
    assert table.complete


def test_tsv_without_file_names_is_called_after_its_recording(tmp_path):
    path = put(tmp_path, "x_0.000_10.000.txt", "0\t1\tdog\n")
    assert read_labels(path, "tsv") == read_labels(path, "audacity") == LabelTable([("x_0.000_10.000", 0, 1, "dog")])
    assert read_labels(put(tmp_path, "y.txt", "onset\toffset\tlabel\n0\t1\tdog\n")).filenames == ("y",)


def test_one_row_that_leaves_the_rest_unknown_makes_the_table_incomplete(tmp_path):
    text = "filename|label|present|split/a.wav|dog|1|train/a.wav|cat|?|/b.wav||?|test/"
    table = read_labels(put(tmp_path, "labels.tsv", lines(text)))
    assert not table.complete
    assert table.filenames == ("a.wav", "b.wav")
    assert table.splits == {"a.wav": "train", "b.wav": "test"}
    assert [row.present for row in table] == [True, None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a|0|1|dog/a|0|1", "2: expected 4 columns, got 3: a | 0 | 1"),
        ("a|b|c|d|e|f", r"1: expected, without a header row, 2 columns .* got 6"),
        ("filename|onset|ofset|label/", "1: unknown column 'ofset'. Known: filename, onset"),
        ("filename|duration/a|10", "1: expected labels, got durations: filename, duration"),
        ("filename|onset|offset/a|0|1", "1: no column with labels"),
        ("filename|onset|offset|label/a|0|1|", "2: no label: add one or delete the row; a file name alone means"),
        ("filename|onset|offset|label/|0|1|dog", "2: no file name"),
        (
            "filename|label|present/a|dog|maybe",
            r"2: expected 1 \(present\), 0 \(absent\) or \? \(unknown\), got 'maybe'",
        ),
        ("filename|label|present/a|dog|", "2: expected 1 .*, got ''"),
        ("filename|onset|offset|label|present/a|0|1|dog|?", "2: 'dog' is marked as unknown"),
        ("filename|label|confidence/a|dog|2", r"2: confidence: expected a number in \[0, 1\]"),
        ("filename|label|confidence/a|dog|high", "2: confidence is not a number: 'high'"),
        ("filename|label|split/a|dog|train/a|cat|test", "3: a is in two splits, 'train' and 'test'"),
        ("filename|event_labels/a|dog,,cat", "2: empty label in 'dog,,cat'"),
        ("filename|label|present/a|dog|1/a|dog|0", ".*labels.tsv: a: 'dog' is marked both"),
        ("filename|onset|offset|label/", ".*labels.tsv: contains no labels"),
    ],
)
def test_tsv_that_cannot_be_read(text, message, tmp_path):
    path = put(tmp_path, "labels.tsv", lines(text))
    with pytest.raises(DataError, match=message if message.startswith(".*") else rf"labels\.tsv:{message}"):
        read_labels(path)


@pytest.mark.parametrize(
    "text",
    [
        ",event_label,onset,offset,filename\n0,dog,0.0,1.5,a.wav\n",
        'File;Begin (s);End;Species;Comment\n"a.wav";0,0;1,5;dog;"loud; far"\n',
        "clip\tstart\tstop\tclass\na.wav\t0\t1.5\tdog\n",
        'path , start_time, end_time , label\n"a.wav", 0 ,1.5, dog\n\n',
        "audio,time,dur,tag\na.wav,0,1.5,dog\n",
        "file,path,onset,offset,labels\na.wav,/tmp/a.wav,0,1.5,dog\n",
    ],
)
def test_csv_under_many_names(text, tmp_path):
    table = read_labels(put(tmp_path, "labels.csv", text))
    assert rows_of(table) == [("a.wav", 0.0, 1.5, "dog", True, None)]


@pytest.mark.parametrize("separator", [";", ",", "|", "\t"])
@pytest.mark.parametrize("name", ["labels.csv", "labels.txt"])
def test_csv_that_names_its_separator(separator, name, tmp_path):
    text = f"sep={separator}\r\nfilename{separator}label\r\na.wav{separator}dog\r\n"
    assert read_labels(put(tmp_path, name, text)) == LabelTable([("a.wav", None, None, "dog")])
    with pytest.raises(DataError, match=rf"{name}:4: expected 2 columns, got 1"):
        read_labels(put(tmp_path, name, text + "x\r\n"))
    with pytest.raises(DataError, match=rf"{name}:2: no column with file names"):
        read_labels(put(tmp_path, name, text.replace("filename", "name")))


def test_csv_with_several_labels_in_a_cell(tmp_path):
    text = 'filename,labels\na,"Air horn, truck horn; Car"\nb,x|y\nc,"x,y"\nd,\n'
    table = read_labels(put(tmp_path, "labels.csv", text))
    found = [(row.filename, row.label) for row in table]
    assert found == [("a", "Air horn, truck horn"), ("a", "Car"), ("b", "x"), ("b", "y"), ("c", "x"), ("c", "y")]
    assert table.filenames == ("a", "b", "c", "d")


def test_csv_with_a_column_per_class(tmp_path):
    table = read_labels(put(tmp_path, "labels.csv", ",filename,dog,cat,bat,split\n0,a,1,0,no,train\n1,b,0,0,0,test\n"))
    assert table == LabelTable(
        [("a", None, None, "dog")],
        filenames=["a", "b"],
        classes=["dog", "cat", "bat"],
        splits={"a": "train", "b": "test"},
    )
    table = read_labels(put(tmp_path, "labels.csv", "filename,dog,cat\na,yes,\nb,0,?\nc,NaN,1.0\n"))
    nan = np.nan
    np.testing.assert_array_equal(table.bag_targets(), [[1, nan], [0, nan], [nan, 1]])
    assert not table.complete
    assert read_labels(put(tmp_path, "files.csv", "filename\na\nb\n")) == LabelTable(filenames=["a", "b"])


def test_csv_with_lines_that_contradict_each_other_is_refused_wide_as_long(tmp_path):
    said = "labels.csv: a.wav: 'dog' is marked both present and absent"
    with pytest.raises(DataError, match=said):
        read_labels(put(tmp_path, "labels.csv", "filename,label,present\na.wav,dog,1\na.wav,dog,0\n"))
    wide = "filename,dog,cat\na.wav,1,0\nb.wav,0,1\n"
    with pytest.raises(DataError, match=said):
        read_labels(put(tmp_path, "labels.csv", wide + "a.wav,0,0\n"))
    table = read_labels(put(tmp_path, "labels.csv", wide + "a.wav,1,0\n"))
    np.testing.assert_array_equal(table.bag_targets(), [[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,label\na,b\n", "1: no column with file names .* in the first line: name, label; rename the column"),
        (
            "a.wav,0,1,dog\n",
            "1: no column with file names .* in the first line: a.wav, 0, 1, dog; .*add a first line: filename,label",
        ),
        ("filename,dog\na,0.7\n", "2: column 'dog': expected 1 .present., 0 .absent. or . .unknown., got '0.7'"),
        (
            "filename,wind\na,3\n",
            "2: column 'wind': .*; write 1 for yes, 0 for no, or delete the column if it is not a class",
        ),
        ("filename,dog,dog\na,1,1\n", "1: two columns have the same name"),
        ("filename,onset,offset\na,1,1\n", "1: no column with labels"),
        ("filename,label\na,dog\nb\n", "3: expected 2 columns, got 1: b; keep the commas of empty cells"),
        (
            'filename,label\n"a\nb",dog\nc,d,e\n',
            "4: expected 2 columns, got 3: .*; quote names with commas",
        ),
        ('filename,label\n"a,dog\n', "2: not a table: unexpected end of data"),
        ("filename,label,event start\na,dog,1\n", "1: column 'event start' looks like a time"),
    ],
)
def test_csv_that_cannot_be_read(text, message, tmp_path):
    with pytest.raises(DataError, match=rf"labels\.csv:{message}"):
        read_labels(put(tmp_path, "labels.csv", text))


def test_tables_are_written_with_the_columns_they_need(tmp_path):
    (path,) = write_labels(LabelTable([("a,b", 0, 1.5, "x"), ("c", None, None, "y")]), tmp_path / "x.csv", "csv")
    assert path.read_text() == 'filename,onset,offset,label\n"a,b",0.0,1.5,x\nc,,,y\n'
    full = LabelTable([("a", None, None, "x", False, 0.5)], filenames=["b"], complete=False, splits={"b": "train"})
    (path,) = write_labels(full, tmp_path / "x.tsv", "tsv")
    assert path.read_text().split("\n")[:3] == [
        "filename\tonset\toffset\tlabel\tpresent\tconfidence\tsplit",
        "b\t\t\t\t?\t\ttrain",
        "a\t\t\t\t?\t\t",
    ]


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    table = LabelTable([("a.wav", np.float64(0.5), np.float32(1.5), "Car", True, np.float32(0.5))])
    for name in NAMES:
        assert_survives(name, table, tmp_path / name)


def test_json_lines(tmp_path):
    text = (
        '{"filename": "a", "onset": 0, "offset": 1.5, "label": "dog", "confidence": 0.5, "split": "train"}\r\n\n'
        '{"filename": "a", "onset": null, "label": "cat", "present": null}\n{"file": "b", "note": 1}\n'
    )
    table = read_labels(put(tmp_path, "labels.txt", text))
    assert table == LabelTable(
        [("a", 0, 1.5, "dog", True, 0.5), ("a", None, None, "cat", None)], filenames=["a", "b"], splits={"a": "train"}
    )
    (path,) = write_labels(table, tmp_path / "x.jsonl", "json")
    assert [list(json.loads(line)) for line in path.read_text().splitlines()] == [
        ["filename", "onset", "offset", "label", "confidence", "split"],
        ["filename", "label", "present", "split"],
        ["filename"],
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected one JSON object per line: "),
        ('[{"filename": "a"}]', r"expected one JSON object per line, got '\["),
        ('{"filename": 1}', "filename: expected text, or none, got 1"),
        ('{"filename": "a", "label": "x", "onset": "0", "offset": 1}', "onset: expected a number, or none, got '0'"),
        ('{"filename": "a", "label": "x", "onset": true, "offset": 1}', "onset: expected a number, or none, got True"),
        ('{"filename": "a", "label": "x", "present": 1}', "present: expected true or false, or none, got 1"),
        (
            '{"filename": "a", "label": "x", "onset": NaN, "offset": 1}',
            "onset: expected a finite number, or none, got nan",
        ),
        (
            f'{{"filename": "a", "label": "x", "onset": {10**400}, "offset": 1}}',
            "onset: expected a number, or none, got 1000",
        ),
        ('{"filename": "a", "label": "x", "onset": 1}', "expected both onset and offset"),
        ('{"filename": "a", "label": "x", "t_start": 1}', "column 't_start' looks like a time"),
        ('{"label": "x"}', "no file name"),
        ('{"filename": "a", "onset": 0, "offset": 1}', "no label"),
        ("[" * 100_000, "expected one JSON object per line"),
    ],
)
def test_json_that_cannot_be_read(text, message, tmp_path):
    with pytest.raises(DataError, match=rf"labels\.jsonl:1: {message}"):
        read_labels(put(tmp_path, "labels.jsonl", text))


def scape(namespace, data, duration=10.0):
    annotation = {"namespace": namespace, "time": 0, "duration": duration, "data": data}
    return json.dumps({"annotations": [annotation], "file_metadata": {"duration": duration}, "sandbox": {}})


def seen(time, duration, value, confidence=1.0):
    return {"time": time, "duration": duration, "value": value, "confidence": confidence}


@pytest.mark.parametrize(
    ("namespace", "value", "expected"),
    [
        ("scaper", {"label": "dog", "role": "foreground"}, ("night", 1.0, 3.0, "dog")),
        ("sound_event", {"label": "dog", "role": "foreground"}, ("night", 1.0, 3.0, "dog")),
        ("segment_open", "dog", ("night", 1.0, 3.0, "dog", True, 1.0)),
        ("tag_open", "dog", ("night", 1.0, 3.0, "dog", True, 1.0)),
    ],
)
def test_jams_events(namespace, value, expected, tmp_path):
    data = [seen(1.0, 2.0, value)]
    if namespace in ("scaper", "sound_event"):
        data.insert(0, seen(0.0, 10.0, {"label": "noise", "role": "background"}))
    by_column = {key: [observation[key] for observation in data] for key in data[0]}
    for layout in (data, by_column):
        table = read_labels(put(tmp_path, "night.jams", scape(namespace, layout)))
        assert list(table) == [Label(*expected)]


def test_jams_tags_of_the_whole_file_have_no_times(tmp_path):
    for duration, length in [(10.0, 10.0), (None, 3.0), (10.0, 0.0)]:
        path = put(tmp_path, "night.jams", scape("tag_open", [seen(0.0, length, "dog", None)], duration))
        assert read_labels(path) == LabelTable([("night", None, None, "dog")])
    # An event that lasts as long as the file is one all the same.
    path = put(tmp_path, "night.jams", scape("segment_open", [seen(0.0, 10.0, "dog", None)]))
    assert read_labels(path) == LabelTable([("night", 0, 10, "dog")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JAMS document: EOF while parsing an object at line 1 column 1"),
        ("[1]", "not a JAMS document: no annotations"),
        ('{"annotations": [{}]}', "not a JAMS document: no annotations"),
        (scape("beat", []), "expected a namespace with sound events .*, got beat"),
        (scape("segment_open", 3), "expected a list of observations"),
        (
            scape("segment_open", {"time": [1], "duration": [], "value": []}),
            "expected columns time, duration and value of the same length",
        ),
        (scape("segment_open", [seen(0, 1, "a"), 3]), "annotation 1, observation 2: not an observation: 3"),
        (scape("segment_open", [seen(0, -1, "a")]), "annotation 1, observation 1: event ends before it begins"),
        (scape("segment_open", [seen(0, 1, 5)]), "annotation 1, observation 1: expected text as label, got 5"),
        (scape("segment_open", [seen(0, 1, "a", "high")]), "annotation 1, observation 1: expected numbers .*'high'"),
        (scape("segment_open", [seen("x", 1, "a")]), "annotation 1, observation 1: not an observation"),
    ],
)
def test_jams_that_cannot_be_read(text, message, tmp_path):
    with pytest.raises(DataError, match=rf"night\.jams: {message}"):
        read_labels(put(tmp_path, "night.jams", text), "jams")


@pytest.mark.parametrize(
    "table",
    [
        LabelTable([("a.wav", 0.5, 2.0, "dog", True, 0.5), ("a.wav", None, None, "Air horn, truck horn")]),
        LabelTable([("a.wav", None, None, "dog")]),
        LabelTable(filenames=["a.wav"]),
    ],
)
def test_jams_written_here_is_jams_to_its_makers(table, tmp_path):
    (path,) = write_labels(table, tmp_path, "jams")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jams = pytest.importorskip("jams")
        document = jams.load(str(path), validate=True, strict=True)
        assert document.validate(strict=True)
    assert document.file_metadata.duration == max((row.offset for row in table if row.has_times), default=0)
    found = {(a.namespace, o.value, o.time, o.confidence) for a in document.annotations for o in a.data}
    expected = {
        ("segment_open" if row.has_times else "tag_open", row.label, row.onset or 0, row.confidence) for row in table
    }
    assert found == expected


def test_audacity(tmp_path):
    text = "0,5\t2,25\tdog\r\n\\\t100.0\t2000.0\r\n3\t3\tpoint\r\n"
    table = read_labels(put(tmp_path, "night.txt", text))
    assert table == LabelTable([("night", 0.5, 2.25, "dog"), ("night", 3, 3, "point")])
    with pytest.raises(DataError, match=r"a.txt:1: expected 3 columns .onset, offset, label., got 4: 1 | 2 | a | b"):
        read_labels(put(tmp_path, "a.txt", "1\t2\ta\tb\n"), "audacity")
    with pytest.raises(DataError, match=r"a.txt:1: no label: in Audacity"):
        read_labels(put(tmp_path, "a.txt", "1\t2\t\n"), "audacity")


RAVEN = (
    "Selection|View|Channel|Begin Time (s)|End Time (s)|Low Freq (Hz)|High Freq (Hz)|Begin File|File Offset (s)|Species"
)


def test_raven(tmp_path):
    text = lines(
        f"{RAVEN}/1|Spectrogram 1|1|0.5|1.5|0|9000|a.wav|0.5|dog/1|Waveform 1|1|0.5|1.5|||a.wav|0.5|dog"
        "/1|Waveform 1|2|0.5|1.5|||a.wav|0.5|dog/2|Spectrogram 1|1|61.0|62.5|0|9000|b.wav|1.0|cat/"
    )
    table = read_labels(put(tmp_path, "x/night.Table.1.selections.txt", text))
    assert table == LabelTable([("a.wav", 0.5, 1.5, "dog"), ("b.wav", 1.0, 2.5, "cat")])
    assert read_labels(tmp_path).filenames == ("x/a.wav", "x/b.wav")
    paths = text.replace("Begin File", "Begin Path").replace("a.wav", "D:\\birds\\a.wav")
    assert read_labels(put(tmp_path, "y.txt", paths)) == table


def test_raven_tables_of_one_recording(tmp_path):
    text = lines("Selection|Begin Time (s)|End Time (s)|Call|Annotation|Confidence/1|0.5|1.5|song|dog|0.75/")
    path = put(tmp_path, "night.BirdNET.selection.table.txt", text)
    assert read_labels(path) == LabelTable([("night", 0.5, 1.5, "dog", True, 0.75)])
    assert read_labels(path, Raven(label_column="Call")).classes == ("song",)
    bare = put(tmp_path, "quiet.selections.txt", text.partition("\n")[0])
    assert read_labels(bare) == LabelTable(filenames=["quiet"])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "Selection|Begin Time (s)|End Time (s)/1|0|1",
            {},
            r"1: no column for labels .Annotation.* in Selection, Begin Time \(s\), End Time \(s\); name the one "
            r"with the labels Annotation, or pass it in Python: Raven\(label_column=...\)",
        ),
        ("Begin Time (s)|End Time (s)|Tag/0|1|a", {"label_column": "Call"}, "1: no column 'Call' in"),
        ("Selection|Begin Time (s)|Tag/1|0|1", {}, "1: no 'Begin Time .s.' and 'End Time .s.' in"),
        ("Begin Time (s)|End Time (s)|Tag/0|1", {}, "2: expected 3 columns, got 2: 0 | 1"),
        ("Begin Time (s)|End Time (s)|Tag/0|1|", {}, "2: no label: annotate this selection"),
        ("Begin Time (s)|End Time (s)|Tag|Begin File/0|1|a|x/0|1|a|y", {}, "3: several Begin Files but no column"),
    ],
)
def test_raven_that_cannot_be_read(text, options, message, tmp_path):
    with pytest.raises(DataError, match=rf"night\.txt:{message}"):
        read_labels(put(tmp_path, "night.txt", lines(text)), Raven(**options))


def test_dcase2017_weak_files_have_no_times_and_strong_ones_do(tmp_path):
    weak = "2ceUOv8A3FE_0.000_10.000.wav\t0.000\t10.000\tCar\n2hcY8kXQj60_30.000_40.000.wav\t30.000\t40.000\tBus\n"
    assert [row.has_times for row in read_labels(put(tmp_path, "a.csv", weak))] == [False, False]
    strong = weak.replace("30.000\t40.000", "1.5\t2")
    assert [row.has_times for row in read_labels(put(tmp_path, "a.csv", strong))] == [True, True]
    nowhere = weak.replace("30.000\t40.000", "0\t0")
    assert [row.has_times for row in read_labels(put(tmp_path, "a.csv", nowhere))] == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2ceUOv8A3FE_0.000_10.000.wav\t1\t2\tCarr\n", "1: label='Carr' is not known"),
        ("a.wav\t1\t2\n", "1: expected 4 columns, got 3"),
        (f"2ceUOv8A3FE,{'0' * 200_000}", "1: not a table: field larger than field limit"),
        ("2ceUOv8A3FE,0.000,10.000,Car\n", "1: expected 5 columns .id, start, end, labels, ids., got 4"),
        ("2ceUOv8A3FE,0.000,10.000,Car,/m/0\n", "1: '/m/0' is not the id of one of the task's 17 classes"),
    ],
)
def test_dcase2017_that_cannot_be_read(text, message, tmp_path):
    with pytest.raises(DataError, match=rf"a\.csv:{message}"):
        read_labels(put(tmp_path, "a.csv", text), "dcase2017")


def plain(path):
    """Rows of an official file, with nothing but `split`."""
    return [line.split("\t") for line in path.read_bytes().decode().replace("\r", "").splitlines()]


@pytest.mark.parametrize(
    ("file", "n_rows", "n_clips", "n_timed"),
    [
        ("groundtruth_weak_label_training_set.csv", 56131, 51172, 0),
        ("groundtruth_weak_label_testing_set.csv", 606, 488, 0),
        ("groundtruth_strong_label_testing_set.csv", 688, 488, 652),
        ("groundtruth_weak_label_evaluation_set.csv", 1350, 1103, 0),
        ("groundtruth_strong_label_evaluation_set.csv", 1706, 1103, 1556),
    ],
)
def test_dcase2017_official_files(file, n_rows, n_clips, n_timed, shared, tmp_path):
    path = shared / "dcase2017_task4" / file
    table, cells = read_labels(path), plain(path)
    assert (len(table), len(table.filenames)) == (len(cells), len({row[0] for row in cells})) == (n_rows, n_clips)
    assert Counter(row.label for row in table) == Counter(row[3] for row in cells)
    assert len({row.label for row in table}) == 17
    timed = [(row[0], float(row[1]), float(row[2]), row[3]) for row in cells if "strong" in file and float(row[2]) > 0]
    assert [tuple(row)[:4] for row in table if row.has_times] == timed
    assert len(timed) == n_timed
    assert_survives("dcase2017", table, tmp_path)


def test_dcase2017_classes_and_testing_set_agree_with_the_other_files(shared):
    folder = shared / "dcase2017_task4"
    ids = dict(
        line.split("\t")[::2] for line in (folder / "sound_event_list_17_classes.txt").read_text().splitlines()[1:]
    )
    assert tuple(ids.values()) == CLASSES
    table = read_labels(folder / "testing_set.csv")
    with (folder / "testing_set.csv").open(newline="") as file:
        said = [(f"{r[0]}_{r[1]}_{r[2]}.wav", ids[i]) for r in csv.reader(file) for i in r[4].split(",")]
    assert [(row.filename, row.label) for row in table] == said
    assert len(said) == 606
    strong = read_labels(folder / "groundtruth_strong_label_testing_set.csv")
    assert set(table) == set(read_labels(folder / "groundtruth_weak_label_testing_set.csv")) == set(weak(strong))


def test_urbansed_jams_and_text_say_the_same(shared):
    pairs = sorted(shared.glob("urbansed/original*/annotations/*/*.jams"))
    assert len(pairs) == 25
    for path in pairs:
        one, two = (settled(read_labels(p)) for p in (path, path.with_suffix(".txt")))
        assert [row.label for row in one] == [row.label for row in two]
        np.testing.assert_allclose([row[1:3] for row in one], [row[1:3] for row in two], rtol=0, atol=1e-6)
    for name in ("jams", "audacity"):
        assert len(read_labels(shared / "urbansed" / "original" / "annotations", name).filenames) == 24


def test_urbansed_specification_reads_as_a_table(shared):
    table = read_labels(shared / "urbansed" / "events.csv.gz")
    assert (len(table), len(table.filenames), len(table.classes)) == (49831, 10000, 10)
    assert Counter(table.splits.values()) == {"train": 6000, "validate": 2000, "test": 2000}


@pytest.mark.parametrize(
    ("file", "name", "n_rows", "n_files", "n_classes"),
    [
        ("metrics/desed_student/validation.tsv", "tsv", 4224, 1168, 10),
        ("metrics/desed_student/predictions0.5.csv", "csv", 3312, 1140, 10),
        ("metrics/sed_eval/street_fold1_reference.txt", "tsv", 142, 6, 6),
        ("metrics/sed_eval/street_fold1_detected.txt", "tsv", 218, 6, 6),
        ("metrics/sed_eval/mini_reference.txt", "audacity", 2, 1, 1),
        ("metrics/sed_eval/office_snr0_high_v2.txt", "audacity", 68, 1, 15),
        ("medleydb/gt_all.csv", "tsv", 9695, 478, 8),
    ],
)
def test_real_files_survive_every_format(file, name, n_rows, n_files, n_classes, shared, tmp_path):
    path = shared / file
    assert guess_format(path) == name
    table = read_labels(path)
    assert (len(table), len(table.filenames), len(table.classes)) == (n_rows, n_files, n_classes)
    assert all(row.has_times for row in table)
    for other in set(NAMES) - {"dcase2017"}:
        part = table.select(table.filenames[-100:]) if FORMATS[other].cls.per_recording else table
        assert_survives(other, part, tmp_path / other)


def test_files_that_are_no_labels_are_said_to_be_none(shared):
    for file in ("sed_eval/LICENSE.txt", "desed_student/segment_f1.txt"):
        with pytest.raises(DataError, match="not a known label format"):
            read_labels(shared / "metrics" / file)
    with pytest.raises(DataError, match="expected labels, got durations"):
        read_labels(shared / "metrics" / "desed_student" / "validation_durations.tsv")


def test_files_of_the_room_import_in_the_order_its_door_says():
    said = re.findall(r"`(\w+)`", earmark.formats.__doc__.split("importing only those before it:")[1])
    folder = Path(earmark.formats.__file__).parent
    assert sorted(said) == sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    for path in folder.glob("*.py"):
        for inner in re.findall(r"^from earmark\.formats\.(\w+) import", path.read_text(), re.M):
            assert path.stem == "__init__" or said.index(inner) < said.index(path.stem), f"{path.stem} imports {inner}"
