"""The report of a detection job: exact counts, a page of limited size, escaped names."""

import json
import os
import re
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from earmark.annotations import Label
from earmark.audio.clock import recorded_at
from earmark.detection.ledger import Ledger
from earmark.errors import ArgumentError, DataError
from earmark.reporting.job import (
    EVENT,
    Job,
    Recording,
    by_clock,
    by_day,
    by_position,
    lanes,
    read_job,
    render_job,
    write_job_report,
)

pytestmark = pytest.mark.usefixtures("drawn_figures")

NASTY = "</script><script>alert('&')</script> \U0001f99c\u200d\U0001f525 $x$"


def found(*rows):
    """Events of rows (recording, class, onset, offset, confidence)."""
    return np.array(list(rows), EVENT)


def some_events(rng, n, recordings, classes, duration):
    onset = rng.uniform(0, duration, n)
    offset = np.minimum(onset + rng.exponential(2.0, n), duration)
    numbers = rng.integers(recordings, size=n), rng.integers(classes, size=n)
    return np.rec.fromarrays([*numbers, onset, offset, rng.uniform(size=n)], dtype=EVENT)


@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("20260514_221500.WAV", (2026, 5, 14, 22, 15, 0)),  # AudioMoth
        ("20260514_221500T.WAV", (2026, 5, 14, 22, 15, 0)),  # AudioMoth, triggered
        ("SM4-A_B7_20260514_221500.wav", (2026, 5, 14, 22, 15, 0)),  # Song Meter
        ("SM2_20260514$221500.wav", (2026, 5, 14, 22, 15, 0)),
        ("20260514T221500+1000_REC.flac", (2026, 5, 14, 22, 15, 0)),  # Frontier Labs
        ("2026-05-14T22:15:00Z.opus", (2026, 5, 14, 22, 15, 0)),
        ("2026-05-14_22-15-00_x.wav", (2026, 5, 14, 22, 15, 0)),
        ("20260514_221500_20260514_231500.wav", (2026, 5, 14, 22, 15, 0)),
        ("20269999_000000_20260514_221500.wav", (2026, 5, 14, 22, 15, 0)),
        ("20260229_221500.wav", None),  # no such day
        ("20260514_251500.wav", None),
        ("20260514.wav", None),
        ("221500.wav", None),
        ("120260514_221500.wav", None),  # a longer number
        ("20260514_2215001.wav", None),
        ("33340514_221500.wav", None),
        ("20260514_221500/a.wav", None),  # of the folder
        ("2026-0514_221500.wav", None),
        ("soundscape_train_uniform1736.wav", None),
        ("", None),
    ],
)
def test_recorders_write_their_clock_into_names(name, moment):
    assert recorded_at(name) == (moment and datetime(*moment))


@pytest.mark.parametrize(
    ("longest", "columns", "last"),
    [
        (0.2, 1, "0:00"),
        (10, 10, "0:09"),
        (60, 12, "0:55"),
        (600, 20, "9:30"),
        (3600, 12, "55:00"),
        (3601, 2, "1 h"),
        (86400, 24, "23 h"),
        (86401, 13, "24 h"),
        (40 * 86400, 20, "912 h"),
    ],
)
def test_columns_are_hours_or_what_suits_the_longest_recording(longest, columns, last):
    activity = by_position([Recording("a", longest), Recording("b", longest / 2)], found(), ["x"])
    assert (len(activity.columns), activity.columns[-1]) == (columns, last)
    assert activity.seconds.sum() == pytest.approx(1.5 * longest)


def test_an_event_belongs_to_the_hour_in_which_it_begins():
    recordings = [Recording("a", 2 * 3600.0), Recording("b", 1.5 * 3600.0)]
    events = found((0, 0, 3599.0, 3700.0, 1), (1, 0, 3600.0, 3601.0, 1), (1, 1, 5399.9, 5400.0, 1))
    activity = by_position(recordings, events, ["x", "y"])
    assert activity.counts.tolist() == [[1, 1], [0, 1]]
    assert activity.seconds.tolist() == [7200.0, 5400.0]
    np.testing.assert_allclose(activity.rates, [[0.5, 2 / 3], [0, 2 / 3]])


def test_hours_of_the_day_keep_a_night_in_one_piece():
    recordings = [
        Recording("a", 3 * 3600.0, datetime(2026, 5, 14, 22, 30)),
        Recording("b", 3600.0, datetime(2026, 5, 16, 3, 0)),
        Recording("c", 9 * 3600.0),  # nobody knows when
    ]
    events = found((0, 0, 0, 1, 1), (0, 0, 1800, 1801, 1), (0, 0, 5400, 5401, 1), (1, 0, 60, 61, 1), (2, 0, 0, 1, 1))
    activity = by_clock(recordings, events, ["x"])
    assert activity.columns == ("22", "23", "00", "01", "02", "03")
    assert activity.counts.tolist() == [[1, 1, 1, 0, 0, 1]]
    assert activity.seconds.tolist() == [1800, 3600, 3600, 1800, 0, 3600]
    assert activity.rates.tolist() == [[2, 1, 1, 0, 0, 1]]


def test_days_are_rows_and_become_months_when_they_are_many():
    recordings = [Recording(str(d), 7200.0, datetime(2026, 1, 1 + d, 23)) for d in range(3)]
    events = found((0, 0, 10, 11, 1), (0, 0, 3610, 3611, 1), (2, 0, 10, 11, 1))
    days = by_day(recordings, events)
    assert days.rows == ("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")
    assert days.counts[:, 23].tolist() == [1, 0, 1, 0]
    assert days.counts[:, 0].tolist() == [0, 1, 0, 0]
    assert days.seconds[:, 23].tolist() == [3600, 3600, 3600, 0]
    many = [Recording(str(d), 60.0, datetime.fromordinal(738000 + d)) for d in range(90)]
    months = by_day(many, found((0, 0, 10, 11, 1)))
    assert [len(row) for row in months.rows] == [7] * 4
    assert months.seconds.sum() == 90 * 60


def test_lanes_count_events_wherever_they_last(rng):
    events = some_events(rng, 200, 1, 3, 100.0)
    labels, counts = lanes(events, 100.0, 40)
    for lane, label in enumerate(labels):
        for part in range(40):
            inside = (events.label == label) & (events.onset < 2.5 * (part + 1)) & (events.offset > 2.5 * part)
            assert counts[lane, part] == inside.sum()


class Page(HTMLParser):
    """Elements, text and addresses of a page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.words, self.addresses = [], [], []
        self.feed(html)
        self.text = " ".join(" ".join(self.words).split())
        self.timelines = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.S)[1])

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "action")]

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def folder(tmp_path):
    """A job with two recordings, two that failed and one that waits."""
    out = tmp_path / "found <b>"
    out.mkdir()
    names = ["SM4_20260514_221500.wav", NASTY + ".wav", "bad.wav", "worse.wav", "later.wav"]
    paths = [Path("/recordings", name) for name in names]
    events = [Label(names[0], 3.0, 4.5, "dog", True, 0.75), Label(names[0], 3600.0, 3660.0, NASTY, True, 0.5)]
    with Ledger(out / "ledger.sqlite") as ledger:
        ledger.add(zip(paths, names, strict=True))
        began = recorded_at(str(paths[0]))
        ledger.finish(paths[0], events, status=os.stat(out), duration=7200.0, began=began)
        ledger.finish(paths[1], [], status=os.stat(out), duration=60.0)
        ledger.fail(paths[2], "is empty: 0 bytes")
        ledger.fail(paths[3], "<i>contains text</i>\nand no sound")
    about = {
        "classes": ["cat", "dog", NASTY],
        "command": "earmark detect 'a b'",
        "decoder": {"threshold": 0.5, "low": None},
    }
    (out / "job.json").write_text(json.dumps(about))
    return out


def test_a_job_is_read_from_its_folder(folder):
    job = read_job(folder)
    assert job.name == "found <b>"
    assert job.classes == ("cat", "dog", NASTY)
    assert sorted((r.name, r.duration, r.began) for r in job.recordings) == [
        (NASTY + ".wav", 60.0, None),
        ("SM4_20260514_221500.wav", 7200.0, datetime(2026, 5, 14, 22, 15)),
    ]
    assert [job.recordings[r].name[:3] for r in job.events["recording"]] == ["SM4", "SM4"]
    assert job.events["label"].tolist() == [1, 2]
    assert job.events["offset"].tolist() == [4.5, 3660.0]
    assert (len(job.failed), job.pending) == (2, 1)
    assert "classes" not in job.settings


def test_the_page_says_what_was_found_and_what_was_not(folder):
    out = write_job_report(folder)
    assert out == folder / "report.html"
    page = Page(out.read_text(encoding="utf-8"))
    for words in (
        "of audio 2 h 1 min recordings processed 2 events detected 2 failed 2 pending 1",
        "command earmark detect 'a b'",
        "threshold: 0.5, low: none",
        "bad.wav is empty: 0 bytes",
        "worse.wav <i>contains text</i>\\nand no sound",
        "from the start times of 1 of the 2 recordings, by name or metadata",
        "All events are drawn.",
    ):
        assert words in page.text
    rows = re.findall(r'<td data-value="(\d+)"><div class="bar">', out.read_text(encoding="utf-8"))
    assert rows == ["1", "1", "0"]


def test_names_do_no_harm(folder):
    text = write_job_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 2  # data, program
    assert "b" not in page.tags  # of the folder's name
    assert "i" not in page.tags[page.tags.index("h2", page.tags.index("form")) :]  # of a reason
    assert "<script>alert" not in text
    assert [r["name"] for r in page.timelines["recordings"]].count(NASTY + ".wav") == 1
    assert page.timelines["classes"][2] == NASTY


def test_the_page_is_one_file_and_asks_nobody_for_anything(folder):
    page = Page(write_job_report(folder).read_text(encoding="utf-8"))
    assert all(address.startswith(("data:", "#")) for address in page.addresses), page.addresses


def test_timelines_hold_every_event_of_a_small_job(folder):
    timelines = Page(write_job_report(folder).read_text(encoding="utf-8")).timelines["recordings"]
    (own,) = [r for r in timelines if r["events"]]
    assert own["each"] == {"1": [300, 150, 75], "2": [360000, 6000, 50]}
    assert (own["seconds"], own["began"]) == (7200.0, "2026-05-14 22:15:00")


def test_a_large_job_has_exact_totals_and_a_bounded_page(rng):
    recordings = tuple(Recording(f"{r}.wav", 86400.0) for r in range(1010))
    events = some_events(rng, 120_000, 1010, 10, 86400.0)
    html = render_job(Job("big", tuple("abcdefghij"), recordings, events))
    assert len(html) < 3_000_000
    page = Page(html)
    counts = [int(n) for n in re.findall(r'<td data-value="(\d+)"><div class="bar">', html)]
    assert counts == sorted(np.bincount(events.label).tolist(), reverse=True)
    assert len(page.timelines["recordings"]) == 1000
    assert "The 1,000 recordings with the most events are drawn. 1,000 recordings with more than 50" in page.text
    for own in page.timelines["recordings"][:20]:
        r = int(own["name"].split(".")[0])
        row = own["parts"]["3"]
        mine = events[(events.recording == r) & (events.label == 3)]
        _, expected = lanes(mine, 86400.0, len(row))
        assert [int(n, 36) for n in row] == expected[0].tolist()


def test_quiet_recordings_of_a_large_job_keep_each_event(rng):
    busy = some_events(rng, 60_000, 1, 30, 3600.0)
    few = found((1, 0, 5.0, 6.0, 0.5))
    joined = np.concatenate([busy, few])
    job = Job("j", tuple(f"c{c}" for c in range(30)), (Recording("a", 3600.0), Recording("b", 60.0)), joined)
    first, second = Page(render_job(job)).timelines["recordings"]
    assert len(first["parts"]) == 20
    assert first["left_out"] == 10
    assert set(first["parts"]["1"]) <= set("0123456789abcdefghijklmnopqrstuvwxyz")
    assert second["each"] == {"0": [500, 100, 50]}


def test_a_job_without_events_or_recordings_has_a_page():
    page = Page(render_job(Job("empty", ("dog",), (Recording("a.wav", 10.0),), found())))
    assert "No events were detected." in page.text
    assert page.timelines["recordings"][0]["each"] == {}
    assert "No events were detected." in Page(render_job(Job("none", (), (), found()))).text


def test_figures_are_part_of_the_page(folder, tmp_path):
    (tmp_path / "a b.png").write_bytes(b"\x89PNG")
    page = write_job_report(folder, figures=[tmp_path / "a b.png"]).read_text()
    assert 'src="data:image/png;base64,iVBORw=="' in page
    assert "Excerpts" in page


def test_only_so_many_failures_are_listed():
    failed = tuple((f"{n}.wav", "is empty") for n in range(600))
    text = Page(render_job(Job("j", ("dog",), (), found(), failed))).text
    assert "499.wav" in text
    assert "500.wav" not in text
    assert "100 more are listed in failed.csv" in text


def test_folders_that_hold_no_job_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="not the folder of a detection job: no ledger"):
        write_job_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"), [("{", "job.json: not valid JSON"), ("[1]", "job.json: expected a table")]
)
def test_settings_that_are_damaged_are_refused(folder, text, message):
    (folder / "job.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_job(folder)
