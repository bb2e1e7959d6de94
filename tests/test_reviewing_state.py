"""Reviews: the journal, the state derived from it, the label table, queues."""

import errno
import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from earmark import audio
from earmark.errors import ArgumentError, DataError
from earmark.formats import read_labels
from earmark.reviewing.intervals import covers, subtract, union
from earmark.reviewing.journal import Journal, parse_entry
from earmark.reviewing.labels import TableWriter, label_table, verified_table, write_table
from earmark.reviewing.queues import ORDERS, Query, Queues, explain, select
from earmark.reviewing.source import Given, Recording, Source, event_id, open_source, recording_paths
from earmark.reviewing.state import Review

NUMBERS = iter(range(10**6))


def make_source(folder, events=(), seconds=(10.0, 20.0)):
    recordings = [Recording(i, f"{'ab'[i]}.wav", folder / f"{'ab'[i]}.wav", s) for i, s in enumerate(seconds)]
    given = [
        Given(event_id(f"{'ab'[r]}.wav", label, onset, offset), r, label, onset, offset, confidence)
        for r, onset, offset, label, confidence in events
    ]
    classes = tuple(sorted({label for _, _, _, label, _ in events}))
    return Source("job", "found", folder, recordings, given, classes)


EVENTS = [(0, 1.0, 2.0, "dog", 0.9), (0, 4.0, 6.0, "dog", 0.6), (0, 5.0, 6.0, "cat", 0.5), (1, 3.0, 4.0, "dog", 0.7)]


@pytest.fixture
def review(tmp_path):
    return Review(make_source(tmp_path, EVENTS))


def ids(review):
    return list(review.events)


def act(review, action, reviewer="ada", **values):
    return review.act({"id": f"n{next(NUMBERS)}", "reviewer": reviewer, "action": action, **values})


def judge(review, event, verdict, **values):
    return act(review, "verdict", events=[event], verdict=verdict, **values)


def statuses(review):
    return [event.status for event in review.events.values()]


def rows(review):
    return [tuple(row)[:5] for row in label_table(review)]


def test_verdicts_survive_a_restart(review, tmp_path):
    dog, _, cat, _ = ids(review)
    judge(review, dog, "right")
    judge(review, cat, "unsure")
    again = Review(make_source(tmp_path, EVENTS))
    assert statuses(again) == statuses(review) == ["right", "open", "unsure", "open"]
    assert again.progress() == review.progress()


def test_a_repeated_request_doubles_nothing(review, tmp_path):
    request = {"id": "same", "reviewer": "ada", "action": "verdict", "events": [ids(review)[0]], "verdict": "wrong"}
    assert review.act(request) is review.act(request)
    added = {"id": "new", "reviewer": "ada", "action": "add", "recording": "a.wav", "label": "owl"}
    added |= {"onset": 7.0, "offset": 8.0}
    review.act(added)
    review.act(added)
    assert len((tmp_path / "verdicts.jsonl").read_text().splitlines()) == 2
    assert statuses(review) == ["wrong", "open", "open", "open", "right"]


def test_undo_and_redo_without_limit_also_after_a_restart(review, tmp_path):
    first, *_ = ids(review)
    states = [statuses(review)]
    for verdict in ("right", "wrong", "unsure"):
        judge(review, first, verdict)
        states.append(statuses(review))
    act(review, "add", recording="b.wav", label="owl", onset=1.0, offset=2.0)
    assert len(statuses(review)) == 5
    review = Review(make_source(tmp_path, EVENTS))
    for state in states[::-1]:
        act(review, "undo")
        assert statuses(review) == state
    with pytest.raises(ArgumentError, match="there is nothing to undo"):
        act(review, "undo")
    review = Review(make_source(tmp_path, EVENTS))
    for state in states[1:]:
        act(review, "redo")
        assert statuses(review) == state
    act(review, "redo")
    assert statuses(review)[-1] == "right"
    with pytest.raises(ArgumentError, match="there is nothing to redo"):
        act(review, "redo")


def test_a_new_action_ends_redoing(review):
    first, second, *_ = ids(review)
    judge(review, first, "right")
    act(review, "undo")
    judge(review, second, "right")
    assert review.can_undo("ada")["redo"] is None


def test_reviewers_undo_only_their_own_actions(review):
    first, second, *_ = ids(review)
    judge(review, first, "right")
    judge(review, second, "wrong", reviewer="bo")
    act(review, "undo")
    assert statuses(review)[:2] == ["open", "wrong"]
    with pytest.raises(ArgumentError, match="bo has no action"):
        act(review, "undo", reviewer="bo", target=review.sequence[0].id)


def test_reviewers_who_disagree_and_how_it_is_settled(review):
    first, *_ = ids(review)
    judge(review, first, "right")
    judge(review, first, "wrong", reviewer="bo")
    assert (statuses(review)[0], select(review, Query(status="disputed"))) == ("disputed", [first])
    assert rows(review) == []
    judge(review, first, "right", reviewer="cy", settles=True)
    assert statuses(review)[0] == "right"
    act(review, "undo", reviewer="cy")
    assert statuses(review)[0] == "disputed"
    judge(review, first, "right", reviewer="bo")
    assert statuses(review)[0] == "right"
    judge(review, first, "right", reviewer="bo", label="fox")
    assert statuses(review)[0] == "disputed"


def test_a_bulk_verdict_is_one_action(review):
    act(review, "verdict", events=ids(review), verdict="wrong")
    assert statuses(review) == ["wrong"] * 4
    act(review, "undo")
    assert statuses(review) == ["open"] * 4


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"action": "verdict", "events": ["no"], "verdict": "right"}, "there is no event 'no'"),
        ({"action": "verdict", "events": "all", "verdict": "right"}, "events: expected a list of ids"),
        ({"action": "verdict", "events": [], "verdict": "right"}, "events: expected a list"),
        ({"action": "add", "recording": "../a.wav", "label": "owl", "onset": 0.0, "offset": 1.0}, "no recording"),
        ({"action": "add", "recording": "a.wav", "label": "owl", "onset": 2.0, "offset": 1.0}, "ends before"),
        (
            {"action": "add", "recording": "a.wav", "label": "owl", "onset": 2.0, "offset": 2.0},
            "offset after the onset",
        ),
        ({"action": "add", "recording": "a.wav", "label": "owl", "onset": 2.0, "offset": 99.0}, "within the 10.000 s"),
        ({"action": "add", "recording": "a.wav", "label": " owl", "onset": 2.0, "offset": 3.0}, "label: expected text"),
        ({"action": "stretch", "recording": "a.wav", "onset": float("nan"), "offset": 3.0}, "onset: expected"),
        ({"action": "note", "recording": "a.wav", "text": "x", "event": "no"}, "there is no event"),
        ({"action": "dance"}, "action: expected verdict, add"),
        ({"action": "undo", "target": "other"}, "has no action 'other'"),
        ({"action": "checked", "recording": "a.wav", "reviewer": ""}, "reviewer: expected text"),
        ({"action": "checked", "recording": "a.wav", "extra": 1}, "key='extra' is not known"),
    ],
)
def test_bad_actions_change_nothing(review, tmp_path, request_, message):
    with pytest.raises((ArgumentError, DataError), match=message):
        review.act({"id": "x", "reviewer": "ada", **request_})
    assert not (tmp_path / "verdicts.jsonl").exists()
    assert statuses(review) == ["open"] * 4


def test_corrections(review):
    dog, long, *_ = ids(review)
    judge(review, dog, "right", label="fox")
    judge(review, long, "right", onset=4.5, offset=5.5)
    described = review.describe(review.event(long))
    assert (described["onset"], described["given"]["onset"]) == (4.5, 4.0)
    assert "fox" in review.classes
    assert rows(review) == [
        ("a.wav", None, None, "dog", None),
        ("a.wav", None, None, "fox", None),
        ("a.wav", 1.0, 2.0, "dog", False),
        ("a.wav", 1.0, 2.0, "fox", True),
        ("a.wav", 4.0, 4.5, "dog", False),
        ("a.wav", 4.5, 5.5, "dog", True),
        ("a.wav", 5.5, 6.0, "dog", False),
    ]


def test_a_stretch_with_nothing_else_makes_everything_unmarked_there_absent(review):
    dog, *_ = ids(review)
    judge(review, dog, "right")
    act(review, "stretch", recording="a.wav", onset=0.0, offset=7.0)
    assert statuses(review) == ["right", "wrong", "wrong", "open"]
    targets = label_table(review).frame_targets("a.wav", 10, 1.0)
    np.testing.assert_array_equal(targets[:, 0], [0] * 7 + [np.nan] * 3)
    np.testing.assert_array_equal(targets[:, 1], [0, 1] + [0] * 5 + [np.nan] * 3)
    act(review, "stretch", recording="a.wav", onset=3.0, offset=7.0, empty=False)
    assert statuses(review)[:3] == ["right", "open", "open"]
    act(review, "undo")
    assert statuses(review)[:3] == ["right", "wrong", "wrong"]


def test_a_checked_recording_is_known_as_a_whole(review):
    dog, *_ = ids(review)
    judge(review, dog, "right")
    act(review, "checked", recording="a.wav")
    assert statuses(review) == ["right", "wrong", "wrong", "open"]
    assert rows(review) == [("a.wav", None, None, "cat", False), ("a.wav", 1.0, 2.0, "dog", True)]
    act(review, "checked", recording="a.wav", checked=False)
    assert statuses(review) == ["right", "open", "open", "open"]


def test_what_a_reviewer_is_unsure_about_stays_unknown_in_a_checked_recording(review):
    _, long, *_ = ids(review)
    judge(review, long, "unsure")
    act(review, "checked", recording="a.wav")
    targets = label_table(review).frame_targets("a.wav", 10, 1.0)
    np.testing.assert_array_equal(targets[:, 1], [0] * 4 + [np.nan] * 2 + [0] * 4)


def test_the_table_can_be_read_and_an_edited_one_is_kept(review, tmp_path):
    judge(review, ids(review)[0], "right")
    path = write_table(review)
    assert read_labels(path) == label_table(review).replace(classes=("dog",))
    path.write_text("mine")
    judge(review, ids(review)[1], "wrong")
    write_table(review)
    assert (tmp_path / "verdicts.edited.csv").read_text() == "mine"
    assert len(read_labels(path)) == 3


def test_the_table_goes_when_all_verdicts_are_undone(review):
    judge(review, ids(review)[0], "right")
    path = write_table(review)
    act(review, "undo")
    write_table(review)
    assert not path.exists()
    act(review, "redo")
    assert read_labels(write_table(review)).classes == ("dog",)
    path.write_text("mine")
    act(review, "undo")
    write_table(review)
    assert path.read_text() == "mine"


def test_a_change_during_the_last_write_is_written_too(review, monkeypatch):
    monkeypatch.setattr(TableWriter, "DELAY", 0.0)
    is_writing, may_go_on, written = threading.Event(), threading.Event(), []

    def write(review):
        written.append(label_table(review).filenames)
        is_writing.set()
        may_go_on.wait(10)

    monkeypatch.setattr("earmark.reviewing.labels.write_table", write)
    writer = TableWriter(review)
    writer.notify()
    assert is_writing.wait(10)
    judge(review, ids(review)[0], "right")
    writer.notify()
    closing = threading.Thread(target=writer.close)
    closing.start()
    while not writer._stopped.is_set():
        time.sleep(0.001)
    may_go_on.set()
    closing.join(10)
    assert written == [(), ("a.wav",)]


@pytest.mark.parametrize("verdict", ["right", "wrong"])
def test_verdicts_on_a_class_that_is_no_longer_detected_stay(verdict, review, tmp_path):
    judge(review, ids(review)[2], verdict)
    again = Review(make_source(tmp_path, [event for event in EVENTS if event[3] != "cat"]))
    assert again.classes == ["dog", "cat"]
    assert again.progress()["total"][verdict] == 1
    assert [tuple(row)[3:5] for row in label_table(again) if row.has_times] == [("cat", verdict == "right")]


def test_events_for_other_programs(review):
    dog, _long, cat, _ = ids(review)
    judge(review, dog, "right", offset=2.5)
    judge(review, cat, "wrong")
    assert [tuple(row)[:4] for row in verified_table(review)] == [("a.wav", 1.0, 2.5, "dog")]
    everything = verified_table(review, only_right=False)
    assert [row.onset for row in everything] == [1.0, 4.0, 3.0]


def test_verdicts_outlive_another_detection(review, tmp_path):
    dog, long, *_ = ids(review)
    judge(review, dog, "right")
    judge(review, long, "wrong")
    later = [(0, 4.1, 6.1, "dog", 0.8), (0, 8.0, 9.0, "dog", 0.5)]
    again = Review(make_source(tmp_path, later))
    known = {(e.given.onset, e.source, e.status, e.given.confidence) for e in again.events.values()}
    assert known == {
        (8.0, "given", "open", 0.5),
        (1.0, "earlier", "right", 0.9),
        (4.0, "earlier", "wrong", 0.8),  # found again, at 4.1 s
    }


def test_notes(review):
    event = ids(review)[0]
    act(review, "note", recording="a.wav", text="<b>wind</b>")
    act(review, "note", recording="a.wav", event=event, text="two dogs")
    assert review.describe_recording(0)["note"] == "<b>wind</b>"
    assert review.describe(review.event(event))["note"] == "two dogs"
    act(review, "undo")
    assert "note" not in review.describe(review.event(event))


def test_several_processes_share_a_journal(review, tmp_path):
    other = Review(make_source(tmp_path, EVENTS))
    first, second, *_ = ids(review)
    judge(review, first, "right")
    judge(other, second, "wrong", reviewer="bo")
    review.update()
    assert statuses(review) == statuses(other) == ["right", "wrong", "open", "open"]
    events, recordings = review.changed_since(1)
    assert ([event.id for event in events], recordings) == ([second], [])


def test_a_torn_line_costs_nothing_else(review, tmp_path):
    first, second, *_ = ids(review)
    judge(review, first, "right")
    with (tmp_path / "verdicts.jsonl").open("ab") as file:
        file.write(b'{"id": "torn", "rev')
    again = Review(make_source(tmp_path, EVENTS))
    judge(again, second, "wrong")
    last = Review(make_source(tmp_path, EVENTS))
    assert statuses(last) == ["right", "wrong", "open", "open"]
    assert last.progress()["damaged"] == 1


def test_a_full_disk_leaves_the_journal_as_it_was(review, tmp_path, monkeypatch):
    first, second, *_ = ids(review)
    judge(review, first, "right")
    before = (tmp_path / "verdicts.jsonl").read_bytes()
    real = os.write

    def half(handle, data):
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data[: len(data) - 20])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            judge(review, second, "wrong")
    assert (tmp_path / "verdicts.jsonl").read_bytes() == before
    assert statuses(review)[1] == "open"
    judge(review, second, "wrong")
    assert statuses(Review(make_source(tmp_path, EVENTS)))[:2] == ["right", "wrong"]


WRITER = """
import sys
from pathlib import Path
from earmark.reviewing.journal import Journal, parse_entry
journal = Journal(Path(sys.argv[1]))
for n in range(10_000):
    id = f"{sys.argv[2]}-{n}"
    journal.append(parse_entry({"id": id, "reviewer": "ada", "action": "checked", "recording": "a.wav"}))
    print(id, flush=True)
"""


def test_what_killed_writers_acknowledged_is_there(tmp_path):
    path = tmp_path / "verdicts.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    acknowledged = [writer.stdout.readline().strip() for _ in range(25) for writer in writers]
    for writer in writers:
        writer.kill()
        acknowledged += writer.communicate()[0].split("\n")[:-1]  # complete lines
    written = [entry.id for entry in Journal(path).read_new()]
    assert set(acknowledged) <= set(written)
    assert len(written) == len(set(written))


def test_damaged_journals_are_read_as_far_as_possible(tmp_path):
    good = {"id": "x", "time": "2026-01-01T00:00:00Z", "reviewer": "ada", "action": "checked", "recording": "a.wav"}
    lines = [b"\xff\xfe", b"[1]", b'{"id": 1}', b"{" * 5000, json.dumps(good).encode(), b"", b"null"]
    (tmp_path / "verdicts.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    review = Review(make_source(tmp_path, EVENTS))
    assert (review.checked[0], review.progress()["damaged"]) == (True, 5)


def test_verdicts_of_recordings_that_are_gone_are_kept_in_the_journal(tmp_path):
    review = Review(make_source(tmp_path, EVENTS))
    judge(review, ids(review)[3], "right")
    shorter = Review(make_source(tmp_path, EVENTS[:3], seconds=(10.0,)))
    assert statuses(shorter) == ["open"] * 3
    assert statuses(Review(make_source(tmp_path, EVENTS)))[3] == "right"


def test_queues(review):
    dog, long, cat, other = ids(review)
    assert select(review, Query("time")) == [dog, long, cat, other]
    assert select(review, Query("confident")) == [dog, other, long, cat]
    assert select(review, Query("doubtful")) == [cat, long, other, dog]
    assert select(review, Query("time", label="dog", recording=1)) == [other]
    assert sorted(select(review, Query("random", seed=3))) == sorted(ids(review))
    judge(review, cat, "wrong")
    assert cat not in select(review, Query("informative"))
    assert select(review, Query("time", status="judged")) == [cat]
    with pytest.raises(ArgumentError, match="order='tme' is not known; did you mean 'time'"):
        select(review, Query("tme"))
    with pytest.raises(ArgumentError, match="status='opn' is not known"):
        select(review, Query(status="opn"))


def test_the_informative_queue_and_its_reasons(review):
    dog, long, cat, other = ids(review)
    assert select(review, Query("informative")) == [cat, other, long, dog]
    assert explain(review, review.event(cat)) == (
        "score 1.00 = uncertain 1.00 (confidence 0.50) \N{MULTIPLICATION SIGN} unlike others 1.00 "
        "(0 of 1 cat event here judged) \N{MULTIPLICATION SIGN} decides the recording's classes 1.00 (1 not ruled out)"
    )
    judge(review, dog, "right")
    assert "decides the recording's classes 0.10" in explain(review, review.event(long))


def test_a_stratified_queue_takes_turns(tmp_path):
    confidences = [0.05] * 50 + [0.55] * 3 + [0.95] * 2
    events = [(0, k / 10, k / 10 + 0.1, "dog", c) for k, c in enumerate(confidences)]
    review = Review(make_source(tmp_path, events))
    chosen = [review.event(id).given.confidence for id in select(review, Query("stratified"))]
    assert chosen[:6] == [0.05, 0.55, 0.95] * 2
    assert len(chosen) == 55


def test_queues_stay_as_they_were_made(review):
    queues = Queues(review)
    name, total = queues.make(Query())
    first = queues.page(name, 0, 2)
    judge(review, first[0].id, "right")
    assert (total, [event.id for event in queues.page(name, 0, 9)]) == (4, ids(review))
    with pytest.raises(ArgumentError, match="there is no queue '99'"):
        queues.page("99", 0, 1)


def test_every_order_is_listed():
    assert set(ORDERS) == {"time", "confident", "doubtful", "stratified", "informative", "random"}


@pytest.mark.parametrize("seed", range(5))
def test_intervals_against_a_slow_reference(seed):
    rng = np.random.default_rng(seed)

    def draw():
        return [tuple(sorted(rng.choice(40, 2, replace=False).tolist())) for _ in range(6)]

    def cells(intervals):
        return {k for onset, offset in intervals for k in range(onset, offset)}

    a, b = draw(), draw()
    assert cells(union(a, b)) == cells(a) | cells(b)
    assert cells(subtract(a, b)) == cells(a) - cells(b)
    assert all(covers(union(a), *interval) for interval in a)


def test_reviewing_a_label_table_or_recordings_alone(tmp_path):
    folder = tmp_path / "sound"
    folder.mkdir()
    for name in ("a.wav", "20260514_221500.flac"):
        audio.write(folder / name, np.zeros(8000), 8000)
    (tmp_path / "labels.csv").write_text("filename,onset,offset,label\na,0.2,0.5,dog\na.wav,,,cat\n")
    plain = open_source(folder)
    assert (plain.kind, plain.folder, plain.events) == ("recordings", tmp_path / "sound.review", [])
    assert str(plain.recordings[0].began) == "2026-05-14 22:15:00"
    assert recording_paths(plain.folder)["a.wav"] == folder / "a.wav"
    (tmp_path / "others.csv").write_text("filename,label\nx.wav,dog\n")
    with pytest.raises(DataError, match="none of its files is among the recordings"):
        open_source(folder, labels=tmp_path / "others.csv")
    (tmp_path / "labels.csv").write_text("filename,onset,offset,label\na.wav,0.2,0.5,dog\na.wav,,,cat\n")
    source = open_source(folder, labels=tmp_path / "labels.csv", out=tmp_path / "elsewhere")
    assert [(e.label, e.onset, e.offset) for e in source.events] == [("cat", 0.0, 1.0), ("dog", 0.2, 0.5)]
    assert sorted(os.listdir(tmp_path / "elsewhere")) == [".earmark.jsonl", "recordings.json"]


def test_the_folder_of_verdicts_is_next_to_the_recordings(tmp_path, monkeypatch):
    (tmp_path / "sound" / "inner").mkdir(parents=True)
    audio.write(tmp_path / "sound" / "a.wav", np.zeros(8000), 8000)
    for place, here in ((".", "sound"), ("..", "sound/inner"), ("sound/inner/..", ".")):
        monkeypatch.chdir(tmp_path / here)
        source = open_source(place)
        assert (source.title, source.folder) == ("sound", tmp_path / "sound.review")
    with pytest.raises(ArgumentError, match="a whole disk needs a folder for its verdicts: add --out"):
        open_source(tmp_path.root)


@pytest.mark.parametrize("what", ["nothing", "model", "empty"])
def test_what_cannot_be_reviewed(what, tmp_path):
    place = tmp_path / "place"
    if what != "nothing":
        place.mkdir()
    if what == "model":
        (place / "model.safetensors").write_bytes(b"")
    message = {"nothing": "no such file or folder", "model": "is a model", "empty": "there are no audio files"}[what]
    with pytest.raises((ArgumentError, DataError), match=message):
        open_source(place)
    assert not (tmp_path / "place.review").exists()


def test_entries_are_as_their_lines():
    line = {"id": "x", "time": "2026-01-01T00:00:00.000Z", "reviewer": "ada", "action": "verdict", "verdict": "right"}
    line |= {"events": [{"id": "e", "recording": "a.wav", "label": "dog", "onset": 1.0, "offset": 2.0}]}
    assert parse_entry(line).to_dict() == {**line}


def test_counts_kept_up_to_date_equal_those_from_scratch(review, tmp_path):
    rng = np.random.default_rng(1)
    for number in range(120):
        kind = rng.choice(["verdict", "verdict", "verdict", "add", "stretch", "checked", "undo", "redo"])
        values = {}
        if kind == "verdict":
            chosen = rng.choice(list(review.events), size=rng.integers(1, 3), replace=False).tolist()
            values = {"events": chosen, "verdict": str(rng.choice(["right", "wrong", "unsure", "none"]))}
            if len(chosen) == 1 and values["verdict"] == "right" and rng.random() < 0.5:
                values |= {"label": str(rng.choice(["dog", "fox"])), "onset": 0.5, "offset": float(rng.uniform(1, 9))}
        elif kind == "add":
            values = {"recording": "a.wav", "label": "owl", "onset": 1.0, "offset": float(rng.uniform(2, 9))}
        elif kind == "stretch":
            values = {"recording": "a.wav", "onset": 0.0, "offset": float(rng.uniform(1, 9))}
            values["empty"] = bool(rng.random() < 0.6)
        elif kind == "checked":
            values = {"recording": "b.wav", "checked": bool(rng.random() < 0.5)}
        try:
            act(review, str(kind), reviewer=str(rng.choice(["ada", "bo"])), **values)
        except ArgumentError:
            continue
        if number % 10:
            continue
        again = Review(make_source(tmp_path, EVENTS))
        events = {e.id: review.describe(e) for e in review.events.values()}
        assert events == {e.id: again.describe(e) for e in again.events.values()}
        assert review.progress() == again.progress()
        total = {status: statuses(review).count(status) for status in ("open", "right", "wrong", "unsure", "disputed")}
        assert review.progress()["total"] == total
        for onset, offset in ((0.0, 1.5), (3.0, 8.0)):
            near = {e.id for e in review.events_between(0, onset, offset)}
            assert near == {e.id for e in again.events_between(0, onset, offset)}
            assert near >= {e.id for e in review.events_of(0) if e.current.onset < offset and e.current.offset > onset}
        for e in review.events.values():
            group = review.tally.groups[e.given.recording, e.current.label]
            same = [o for o in review.events_of(e.given.recording) if o.current.label == e.current.label]
            judged, right = sum(bool(o.decisions) for o in same), sum(o.status == "right" for o in same)
            assert (group.judged, group.right) == (judged, right)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_journal_that_is_a_pipe_is_one_line(tmp_path):
    """Opening it would wait for a writer."""
    os.mkfifo(tmp_path / "verdicts.jsonl")
    with pytest.raises(DataError, match=r"verdicts.jsonl: expected a file"):
        Journal(tmp_path / "verdicts.jsonl").read_new()


def test_a_journal_is_not_written_through_a_link(tmp_path):
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("theirs\n")
    (tmp_path / "verdicts.jsonl").symlink_to(theirs)
    action = {"id": "a", "reviewer": "ada", "action": "checked", "recording": "night.wav"}
    with pytest.raises(ArgumentError, match="refusing to write through a symbolic link"):
        Journal(tmp_path / "verdicts.jsonl").append(parse_entry(action))
    assert theirs.read_text() == "theirs\n"
