"""When recordings began: from recorders' metadata, and date and time of day in every table of events."""

import csv
import struct
from datetime import datetime, timedelta, timezone

import pytest
from fake_scorer import EnergyScorer, bursts

from earmark import audio
from earmark.annotations import LabelTable
from earmark.audio.clock import recording_start
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions, run_job
from earmark.errors import DataError
from earmark.formats import read_labels, write_labels
from earmark.reporting.job import read_job

EAST = timezone(timedelta(hours=2))


def with_chunk(path, name, content, *, first=False):
    """Add a chunk to a wav file, after or before its sound."""
    data = path.read_bytes()
    chunk = name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)
    data = data[:12] + chunk + data[12:] if first else data + chunk
    path.write_bytes(data[:4] + struct.pack("<I", len(data) - 8) + data[8:])


def comment(text):
    raw = text.encode() + b"\0"
    raw += b"\0" * (len(raw) % 2)
    return b"INFOICMT" + struct.pack("<I", len(raw)) + raw


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "recordings" / "call.wav"
    path.parent.mkdir()
    audio.write(path, bursts(4, (1, 2)), 8000)
    return path


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("chunk", "content", "expected"),
    [
        (
            b"guan",
            b"GUANO|Version: 1.0\nTimestamp: 2026-05-12T04:30:00.250+02:00\n",
            (2026, 5, 12, 4, 30, 0, 250000, EAST),
        ),
        (b"guan", b"GUANO|Version:1.0\nMake:x\nTimestamp:2026-05-12T04:30:00\n", (2026, 5, 12, 4, 30)),
        (b"guan", b"Timestamp:yesterday\n", None),
        (
            b"LIST",
            comment("Recorded at 04:30:00 12/05/2026 (UTC+2) by AudioMoth 24F"),
            (2026, 5, 12, 4, 30, 0, 0, EAST),
        ),
        (b"LIST", comment("Recorded at 04:30:00 12/05/2026 by AudioMoth 24F"), (2026, 5, 12, 4, 30)),
        (b"LIST", comment("Recorded at 04:30:00 31/04/2026 (UTC) by AudioMoth 24F"), None),
        (b"LIST", comment("a nice evening"), None),
    ],
)
def test_recorders_write_their_clock_into_the_file(recording, chunk, content, expected, first):
    with_chunk(recording, chunk, content, first=first)
    assert recording_start(recording) == (expected and datetime(*expected))
    assert len(audio.read(recording)) == 32000


def test_names_come_before_metadata_and_damage_is_nobodys_trouble(recording, tmp_path):
    with_chunk(recording, b"guan", b"Timestamp:2026-05-12T04:30:00\n")
    assert recording_start(recording.rename(recording.with_name("20250101_000000.wav"))) == datetime(2025, 1, 1)
    assert recording_start(tmp_path / "missing.wav") is None
    long = b"RF64\0\0\0\0WAVEds64\x10\0\0\0" + b"\xff" * 16 + b"data\xff\xff\xff\xff"  # of 2^64 bytes
    for damage in (b"", b"RIFF", b"RIFF\0\0\0\0WAVEguan\xff\xff\xff\xff", b"RF64\0\0\0\0WAVEds64\2\0\0\0ab", long):
        (tmp_path / "x.wav").write_bytes(damage)
        assert recording_start(tmp_path / "x.wav") is None


def read_rows(path, delimiter=","):
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def test_tables_of_a_job_have_date_and_time_of_day(recording, tmp_path):
    with_chunk(recording, b"guan", b"Timestamp:2026-05-11T23:59:58.500+02:00\n")
    audio.write(recording.parent / "unknown.wav", bursts(4, (1, 2)), 8000)
    out = tmp_path / "out"
    detector = SoundDetector(EnergyScorer())
    run_job(detector, [recording.parent], out, JobOptions(formats=("tsv", "raven", "csv", "json")))
    rows = read_rows(out / "events.csv")
    known, unknown = (next(row for row in rows if row["filename"] == name) for name in ("call.wav", "unknown.wav"))
    assert (known["date"], unknown["date"], unknown["time_of_day"]) == ("2026-05-11", "", "")
    onset = float(known["onset"])
    assert known["time_of_day"] == f"23:59:{58.5 + onset:.3f}+02:00"
    assert known["onset"] == str(round(onset, 3))
    assert read_rows(out / "events" / "call.wav.tsv", "\t")[0]["time_of_day"] == known["time_of_day"]
    selection = read_rows(out / "events" / "call.wav.selections.txt", "\t")[0]
    assert (selection["Begin Date"], selection["Begin Clock Time"]) == ("2026-05-11", known["time_of_day"])
    assert "date" not in read_rows(out / "events" / "unknown.wav.tsv", "\t")[0]
    for name in ("events.csv", "events/call.wav.tsv", "events/call.wav.csv", "events/call.wav.jsonl"):
        assert "call.wav" in read_labels(out / name).filenames
    assert {r.name: r.began for r in read_job(out).recordings} == {
        "call.wav": datetime(2026, 5, 11, 23, 59, 58, 500000, EAST),
        "unknown.wav": None,
    }
    frame = detector.detect(recording).to_pandas()
    assert frame["time_of_day"][0] == known["time_of_day"]


def test_without_a_clock_tables_have_no_columns_for_it(recording, tmp_path):
    run_job(SoundDetector(EnergyScorer()), [recording], tmp_path / "out", JobOptions())
    assert list(read_rows(tmp_path / "out" / "events.csv")[0]) == ["filename", "onset", "offset", "label", "confidence"]


def test_audacity_labels_have_their_confidence(tmp_path):
    table = LabelTable([("a", 0.5, 1.5, "dog", True, 0.874), ("a", 2, 3, "owl (big)", True, None)])
    (path,) = write_labels(table, tmp_path / "labels", "audacity")
    assert path.read_text() == "0.5\t1.5\tdog (0.87)\n2.0\t3.0\towl (big)\n"
    assert [row[3:] for row in read_labels(path)] == [("dog", True, 0.87), ("owl (big)", True, None)]
    with pytest.raises(DataError, match=r"'dog \(0.50\)' ends like a confidence"):
        write_labels(LabelTable([("a", 0, 1, "dog (0.50)")]), tmp_path / "labels", "audacity")
