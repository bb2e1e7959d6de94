"""How much to believe: how many such detections were right, and samples to play."""

import os
from pathlib import Path

import numpy as np
import pytest
from fake_scorer import bursts

from earmark import audio
from earmark.annotations import Label, LabelTable
from earmark.evaluation import evaluate_events
from earmark.evaluation.reliability import NAMES, Outcomes, judge
from earmark.reporting.job import EVENT, Job, Recording, render_job
from earmark.reporting.reliability import Band, Reliability, read_reliability, with_events

STRONG = [("a.wav", 1.0, 2.0, "dog"), ("b.wav", None, None, "dog"), ("b.wav", 0.0, 1.0, "owl")]
FOUND = [
    ("a.wav", 1.5, 3.0, "dog", True, 0.95),  # overlaps
    ("a.wav", 2.0, 3.0, "dog", True, 0.6),  # only touches
    ("a.wav", 0.0, 1.0, "owl", True, 0.8),  # is not there
    ("b.wav", 0.0, 0.5, "dog", True, 0.7),  # is somewhere in the clip
]


@pytest.fixture
def run(tmp_path):
    """A run folder with an evaluation of four detections in two clips."""
    for name in ("a.wav", "b.wav"):
        (tmp_path / "data").mkdir(exist_ok=True)
        audio.write(tmp_path / "data" / name, bursts(4, (1, 2)), 8000)
    lines = [f"{n},{'' if on is None else on},{'' if off is None else off},{label}" for n, on, off, label in STRONG]
    (tmp_path / "data" / "labels.csv").write_text("\n".join(["filename,onset,offset,label", *lines]))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(b"")
    reference = LabelTable(STRONG)
    estimate = LabelTable(FOUND, filenames=reference.filenames, classes=reference.classes)
    about = {"data": str(tmp_path / "data"), "split": "all"}
    evaluate_events(estimate, reference, about=about).save(tmp_path / "run")
    return tmp_path / "run"


def test_detections_are_right_where_the_reference_says_so():
    decided = [is_right for _, is_right in judge([Label(*row) for row in FOUND], LabelTable(STRONG))]
    assert decided == [True, False, False, True]
    unknown = LabelTable([("a.wav", None, None, "dog", None)], classes=["dog", "owl"])
    assert [event.label for event, _ in judge([Label(*row) for row in FOUND], unknown)] == ["owl"]


def test_detections_are_not_counted_where_a_recording_is_not_known():
    """As in the verdicts of a review: one event is right, one is wrong, the rest was not judged."""
    rows = [("a.wav", 1.0, 2.0, "dog"), ("a.wav", 5.0, 6.0, "dog", False), ("a.wav", None, None, "dog", None)]
    rows += [("a.wav", 5.0, 6.0, "owl", False)]
    found = [Label("a.wav", onset, onset + 1, label) for label in ("dog", "owl") for onset in (1.5, 3.0, 5.5)]
    decided = [(e.label, e.onset, is_right) for e, is_right in judge(found, LabelTable(rows, complete=False))]
    assert decided == [("dog", 1.5, True), ("dog", 5.5, False), ("owl", 5.5, False)]


def test_shares_come_from_the_evaluation_of_the_run(run):
    found = read_reliability(str(run / "model.safetensors"))
    assert (found.clips, found.problem, found.is_timed) == ("2 clips", "", True)
    assert [[(c.right, c.wrong) for c in cells] for _, cells in found.rows] == [
        [(0, 1), (1, 0), (1, 0)],
        [(0, 0), (0, 1), (0, 0)],
    ]
    later = (run / "scores.json").stat().st_mtime + 10
    os.utime(run / "model.safetensors", (later, later))
    assert "was trained again after it was evaluated" in read_reliability(str(run / "model.safetensors")).problem
    assert "folder has no evaluation" in read_reliability(str(run.parent / "model.safetensors")).problem


def test_without_an_evaluation_shares_come_from_the_validation_clips(run):
    reference = LabelTable([("a.wav", None, None, "dog"), ("b.wav", None, None, "owl")])
    model = str(run / "model.safetensors")
    outcomes = Outcomes.of([Label(*row) for row in FOUND], reference, "2 validation clips")
    outcomes.save(run)
    assert Outcomes.load(run) == outcomes
    assert read_reliability(model).clips == "2 clips"  # of the evaluation
    (run / "scores.json").unlink()
    found = read_reliability(model)
    assert (found.clips, found.is_timed, found.problem) == ("2 validation clips", False, "")
    assert "thresholds were chosen on the same clips" in found.notes[0]
    assert dict(found.rows)["dog"] == (Band(1, 0, 0), Band(0, 1, 0), Band(1, 0, 0))
    (run / "validation.json").write_text('{"clips": 3}')
    assert "folder has no evaluation" in read_reliability(model).problem


def test_each_class_and_band_has_a_sample_to_play_and_the_page_stays_small(run, tmp_path):
    path = tmp_path / "data" / "a.wav"
    events = [(Label("a.wav", k % 3, k % 3 + 0.5, "dog", True, 0.5 + k / 1000), path) for k in range(400)]
    events.append((Label("gone.wav", 0, 1, "owl", True, 0.5), Path("gone.wav")))
    found = with_events(read_reliability(str(run / "model.safetensors")), events)
    (_, dog), (_, owl) = found.rows
    assert [cell.events for cell in dog] == [200, 200, 0]
    assert [cell.sample is not None for cell in dog] == [True, True, False]
    assert dog[0].sample.sound.startswith("data:audio/mpeg;base64,")
    assert len(dog[0].sample.sound) < 40_000
    assert (owl[0].events, owl[0].sample) == (1, None)
    many = [(Label("a.wav", 0, 1, f"class {k:02}", True, 0.5), path) for k in range(40)]
    samples = [c.sample for _, cells in with_events(Reliability(problem="x"), many).rows for c in cells if c.sample]
    assert len(samples) == 30


def test_the_page_says_it_or_why_not():
    job = {"classes": ("dog",), "recordings": (Recording("a.wav", 4.0),), "events": np.empty(0, EVENT)}
    cells = (Band(9, 1, 3), Band(0, 0, 1), Band(0, 0, 0))
    known = Reliability((("dog", cells),), "60 clips of split test")
    page = render_job(Job("x", **job, reliability=known))
    assert "detections on the 60 clips of split test that were right" in page
    assert "<b>90%</b> right: 9 of 10" in page
    assert all(f"confidence {name}" in page for name in NAMES)
    page = render_job(Job("x", **job, reliability=Reliability(problem="run: earmark evaluate run DATA")))
    assert "Unknown: run: earmark evaluate run DATA" in page
