"""Label files that are damaged or made to do harm: each is a table, or an error of one line that names the file."""

import gzip
import json
import random

import pytest

from earmark.annotations import LabelTable
from earmark.datasets import open_data
from earmark.datasets.medleydb import read_track
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.evaluation.references import read_durations
from earmark.formats import FORMATS, read_labels, write_labels
from earmark.synthesis.specification import read_events
from earmark.text import printable

LIMIT = "EARMARK_LARGEST_TABLE"
ROW = "a.wav,0,1,dog\n"
HEADS = {
    "tsv": "filename\tonset\toffset\tlabel\n",
    "csv": "filename,onset,offset,label\n",
    "raven": "Selection\tBegin Time (s)\tEnd Time (s)\tSpecies\n",
}


def refused(path, *args, read=read_labels):
    with pytest.raises(EarmarkError) as caught:
        read(path, *args)
    message = str(caught.value)
    assert str(path) in message
    assert len(message.splitlines()) == 1
    assert len(message) < 900
    assert printable(message) == message
    return message


def put(folder, name, content):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def jams(**changes):
    observation = {"time": 0.0, "duration": 1.0, "value": "dog", "confidence": None} | changes
    document = {
        "annotations": [{"namespace": "segment_open", "data": [observation]}],
        "file_metadata": {"duration": changes.get("whole", 1.0)},
    }
    return json.dumps(document)


@pytest.mark.parametrize("name", ["labels.csv", "labels.csv.gz"])
def test_a_table_beyond_the_limit_is_refused_and_the_limit_can_be_raised(tmp_path, monkeypatch, name):
    text = HEADS["csv"] + ROW * 5000 + ROW * 1000
    path = put(tmp_path, name, gzip.compress(text.encode()) if name.endswith("gz") else text)
    monkeypatch.setenv(LIMIT, "64K")
    assert "expected at most 0.0625 MiB of text, got more; to read it, set EARMARK_LARGEST_TABLE=1M in" in refused(path)
    monkeypatch.setenv(LIMIT, "1m")
    assert len(read_labels(path)) == 6000


def test_decompression_stops_at_the_limit(tmp_path, monkeypatch):
    """Damage beyond the limit is not noticed, since nothing there is decompressed."""
    data = bytearray(gzip.compress(HEADS["csv"].encode() + random.Random(0).randbytes(1 << 20).hex().encode()))
    data[-1000:] = bytes(1000)
    monkeypatch.setenv(LIMIT, "64K")
    assert "of text, got more" in refused(put(tmp_path, "labels.csv.gz", bytes(data)))


@pytest.mark.parametrize("name", ["tsv", "csv", "json", "audacity"])
def test_rows_are_limited_too(tmp_path, monkeypatch, name):
    """Short rows need many times the memory of their text."""
    row = {"tsv": "a\t\t\tb\n", "csv": "a,,,b\n", "json": '{"file":"a","tag":"b"}\n', "audacity": "0\t1\tb\n"}[name]
    path = put(tmp_path, "labels.txt", HEADS.get(name, "") + row * 2100)
    monkeypatch.setenv(LIMIT, "64K")
    message = refused(path, name)
    assert (
        "expected at most 2,048 rows, got more; to read it, set EARMARK_LARGEST_TABLE=1M in the environment" in message
    )
    monkeypatch.setenv(LIMIT, "1M")
    assert len(read_labels(path, name)) == 2100


@pytest.mark.parametrize("text", ["", "many", "-1M", "1.5G", "2", "1T"])
def test_a_limit_that_is_not_a_size(tmp_path, monkeypatch, text):
    monkeypatch.setenv(LIMIT, text)
    with pytest.raises(ArgumentError, match=rf"{LIMIT}: expected a size such as 512M or 2G, got '{text}'"):
        read_labels(put(tmp_path, "labels.csv", HEADS["csv"] + ROW))


def test_json_documents_and_tables_of_events_have_limits(tmp_path, monkeypatch):
    monkeypatch.setenv(LIMIT, "64K")
    assert "expected at most 0.0078125 MiB of JSON" in refused(
        put(tmp_path, "a.jams", '{"annotations": [' + "{}," * 5000)
    )
    head, row = "split,clip,label,src,time,snr,edur\n", "train,a,dog,,0,0,1\n"
    assert "expected at most 256 events, got more" in refused(
        put(tmp_path, "e.csv", head + row * 300), read=read_events
    )
    bomb = gzip.compress((head + row * 5000).encode())
    assert "MiB of text, got more" in refused(put(tmp_path, "e.csv.gz", bomb), read=read_events)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:30] + b"\xff" * 20 + b[50:], lambda b: b[:3] + b"x"])
@pytest.mark.parametrize("read", [read_labels, read_events])
def test_damaged_gzip(tmp_path, damage, read):
    data = gzip.compress(HEADS["csv"].encode() + random.Random(0).randbytes(1000).hex().encode())
    assert "cannot be read" in refused(put(tmp_path, "labels.csv.gz", damage(data)), read=read)


@pytest.mark.parametrize("time", ["1e308", "1e10", "1e400", "9" * 400, "9" * 5000, "nan", "-inf", "1e308e"])
def test_absurd_numbers(tmp_path, time):
    for name, text in {
        "tsv": f"{HEADS['tsv']}a.wav\t0\t{time}\tdog\n",
        "csv": f"{HEADS['csv']}a.wav,0,{time},dog\n",
        "raven": f"{HEADS['raven']}1\t0\t{time}\tdog\n",
        "audacity": f"\n0\t{time}\tdog\n",
        "json": f'\n{{"filename": "a.wav", "onset": 0, "offset": {time}, "label": "dog"}}\n',
    }.items():
        path = put(tmp_path, "labels.txt", text)
        assert refused(path, name).startswith(f"{path}:2: ")
    for part in ("time", "duration", "confidence"):
        refused(put(tmp_path, "a.jams", jams(**{part: 123456.0}).replace("123456.0", time)))
    if time not in ("1e308", "1e10", "1e400", "nan", "-inf"):
        refused(put(tmp_path, "a.jams", jams(whole=654321.0).replace("654321.0", time)))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, '{"annotations": ' + "9" * 5000 + "}"])
@pytest.mark.parametrize("name", ["jams", "json"])
def test_deep_json_and_long_integers(tmp_path, name, text):
    refused(put(tmp_path, f"a.{name}", text), name)
    refused(put(tmp_path, "labels.txt", text))


@pytest.mark.parametrize("name", ["json", "jams", "csv", "tsv", "audacity", "raven"])
def test_class_names_have_no_white_space_around_them(tmp_path, name):
    text = {
        "json": '{"filename": "a", "onset": 0, "offset": 1, "label": "\\u3000 dog "}\n',
        "jams": jams(value=" dog\t"),
        "csv": HEADS["csv"] + 'a,0,1," dog "\n',
        "tsv": HEADS["tsv"] + "a\t0\t1\t dog \n",
        "audacity": "0\t1\t dog\u00a0\n",
        "raven": HEADS["raven"] + "1\t0\t1\t dog\n",
    }[name]
    table = read_labels(put(tmp_path, "a.txt", text), name)
    assert table.classes == ("dog",)
    place = tmp_path / "again"
    write_labels(table, place, name)
    assert read_labels(place, name).classes == ("dog",)


@pytest.mark.parametrize("char", ["\x1b", "\x07", "\x7f", "\x9b", "\u2028"])
@pytest.mark.parametrize("name", ["json", "jams", "csv", "wide", "tsv", "audacity", "raven"])
def test_class_names_have_no_control_characters(tmp_path, name, char):
    label = f"do{char}[2Jg"
    text = {
        "json": json.dumps({"filename": "a", "label": label}),
        "jams": jams(value=label),
        "csv": f"{HEADS['csv']}a,0,1,{label}\n",
        "wide": f"filename,cat,{label}\na,0,1\n",
        "tsv": f"{HEADS['tsv']}a\t0\t1\t{label}\n",
        "audacity": f"0\t1\t{label}\n",
        "raven": f"{HEADS['raven']}1\t0\t1\t{label}\n",
    }[name]
    path = put(tmp_path, "a.txt", text)
    message = refused(path, "csv" if name == "wide" else name)
    assert f"class name {label!r} has control characters or undecodable bytes; rename the class" in message


def test_folders_as_classes_follow_the_same_rule(tmp_path, recordings):
    sound = next(recordings.glob("*.wav")).read_bytes()
    for folder in (" dog ", "cat", "owl"):
        (tmp_path / folder).mkdir()
        put(tmp_path / folder, "a.wav", sound)
    assert open_data(tmp_path).classes == ("cat", "dog", "owl")
    (tmp_path / "cat").rename(tmp_path / "cat\x1b[2J")
    with pytest.raises(DataError, match=r"class name 'cat\\x1b\[2J' has control characters .* the name of a folder"):
        open_data(tmp_path)


def test_file_names_may_have_control_characters_but_no_nul(tmp_path):
    table = LabelTable([("a\x1b\n.wav", None, None, "dog")])
    for name in ("json", "csv"):
        write_labels(table, tmp_path / name, name)
        assert read_labels(tmp_path / name, name) == table
    refused(put(tmp_path, "a.jsonl", '{"filename": "a\\u0000.wav"}\n'))
    refused(put(tmp_path, "b.tsv", (HEADS["tsv"] + "a\0.wav\t\t\tdog\n").encode("utf-16")))


@pytest.mark.parametrize("name", [*HEADS, "json", "jams", "audacity", "dcase2017"])
@pytest.mark.parametrize("length", [5_000, 200_000, 2_000_000])
def test_long_names_and_lines(tmp_path, name, length):
    long = "x" * length
    for cells in (("a.wav", "0", "1", long), ("a.wav", long, "1", "Car"), (long, "0", "1", "Car")):
        if cells[0] == long and name in ("audacity", "raven"):
            continue  # which have no name of a file there
        text = HEADS.get(name, "") + ("," if name == "csv" else "\t").join(cells[1:] if name == "audacity" else cells)
        refused(put(tmp_path, "labels.txt", text), name)


@pytest.mark.parametrize(
    "text", ["a\t\x1b[2J\n", "a,b\x0c,c", "filename,duration\na.wav,\x0b\n", "filename\tduration\na\t" + "9" * 5000]
)
def test_tables_of_durations(tmp_path, text):
    refused(put(tmp_path, "durations.tsv", text), read=read_durations)
    refused(put(tmp_path, "durations.tsv", "filename,duration\n" + "x" * 2_000_000), read=read_durations)


@pytest.mark.parametrize(
    "text", ["a: \x0b", "[" * 5000, "a: &a [1]\nb: *a", "stems: {S01: {filename: [1], instrument: x}}"]
)
def test_metadata_of_medleydb(tmp_path, text):
    refused(put(tmp_path, "A_METADATA.yaml", text), read=read_track)


MIXED = [
    b"\0",
    b"\xff\xfe",
    b"\r",
    b"\n\r\n",
    b'"',
    b"{",
    b"1e308",
    b"\x1b[2J",
    "\u2028".encode(),
    b"\xed\xa0\x80",
    b"\\ud800",
]


@pytest.mark.parametrize("name", [entry.name for entry in FORMATS])
@pytest.mark.filterwarnings("ignore:.*not UTF-8")
def test_mutated_files(tmp_path, name):
    """The same hundred mutations of a written file every time."""
    (path,) = write_labels(
        LabelTable([("a.wav", 0.5, 1.5, "Car"), ("a.wav", 2.0, 3.0, "Bus")]), tmp_path / "x" / "a", name
    )[:1]
    whole, rng = path.read_bytes(), random.Random(name)
    for _ in range(100):
        data, at = bytearray(whole), rng.randrange(len(whole))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:]
        elif kind == 2:
            data[at : at + rng.randrange(4)] = rng.choice(MIXED)
        else:
            data = bytearray(b"\n".join(rng.sample(lines := whole.split(b"\n"), len(lines))))
        mutated = put(tmp_path, f"mutated{FORMATS[name].cls.suffix}", bytes(data))
        for format in (name, None):
            try:
                table = read_labels(mutated, format)
            except EarmarkError:
                refused(mutated, format)
            else:
                assert all(printable(label) == label == label.strip() for label in table.classes)
