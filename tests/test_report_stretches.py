"""Figures of excerpts: requests, the busiest minutes, and what is drawn."""

import sys

import numpy as np
import pytest
from fake_scorer import EnergyScorer, bursts

from earmark import audio
from earmark.annotations import Label
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions, run_job
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder
from earmark.errors import ArgumentError, DataError
from earmark.reporting import stretches
from earmark.reporting.stretches import busiest, check_stretch, check_stretches, choose_stretches, draw_stretches

pytestmark = pytest.mark.usefixtures("drawn_figures")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Three recordings searched, with their scores kept."""
    tmp_path = tmp_path_factory.mktemp("job")
    sounds = {"a.wav": bursts(70, (5, 6), (62, 63)), "sub/b@1-2.wav": bursts(4, (1, 2)), "sub/c.wav": bursts(3)}
    for name, sound in sounds.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        audio.write(tmp_path / "in" / name, sound, 8000)
    run_job(SoundDetector(EnergyScorer()), [tmp_path / "in"], tmp_path / "out", JobOptions(keep_scores=True))
    return tmp_path / "out"


def chosen(job, wanted):
    return [(s.entry.name, s.onset, s.offset) for s in choose_stretches(job, wanted)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("a.wav@10-20.5", ("a.wav", 10.0, 20.5)),
        ("a.wav@0:01:00-0:02:00", ("a.wav", 60.0, 70.0)),  # up to the end
        ("sub/b@1-2.wav@0:01-0:02", ("sub/b@1-2.wav", 1.0, 2.0)),
        ("c.wav@0-1", ("sub/c.wav", 0.0, 1.0)),
    ],
)
def test_a_stretch_is_chosen_by_name_and_times(job, wanted, expected):
    assert chosen(job, wanted) == [expected]


def test_figures_of_long_recordings_have_names_of_their_own(job):
    (stretch,) = choose_stretches(job, "a.wav@5-10")
    late = (stretch._replace(onset=36000.0 + k / 100, offset=36010.0) for k in range(3))
    names = [stretches.figure_path(job, each).name for each in (stretch, *late)]
    assert names == ["a.wav_5-10s.png", *(f"a.wav_{onset}-36010s.png" for onset in ("36000", "36000.01", "36000.02"))]


def test_the_busiest_minutes_are_those_of_each_recording(job):
    assert chosen(job, "busiest") == [("a.wav", 4.0, 64.0), ("sub/b@1-2.wav", 0.0, 4.0), ("sub/c.wav", 0.0, 3.0)]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("10", "expected busiest, ONSET-OFFSET or FILE@ONSET-OFFSET with times .* got '10'"),
        ("a.wav", "for example night.flac@1:02:00-1:03:00"),
        ("a.wav@1:2:3:4-5", "with times in seconds or as h:mm:ss"),
        ("a.wav@20-10", "figure 'a.wav@20-10' ends before it begins"),
        ("a.wav@0-2:00:00", "expected at most one hour, got 2:00:00"),
        (f"a.wav@0-{10**400}", "with times in seconds or as h:mm:ss"),
        ("a.wav@80-90", "is after the end of a.wav, which lasts 0:01:10"),
        ("10-20", "the job has 3 recordings; name one"),
        ("aa.wav@1-2", r"recording 'aa\.wav' is not in the job; the most similar name is a\.wav$"),
        ("CC.wav@1-2", r"the most similar name is sub/c\.wav$"),
    ],
)
def test_what_cannot_be_drawn_is_refused(job, wanted, message):
    with pytest.raises(ArgumentError, match=message):
        choose_stretches(job, wanted)


def test_names_that_several_recordings_share_are_refused(tmp_path):
    for name in ("x/a.wav", "y/a.wav"):
        (tmp_path / "in" / name).parent.mkdir(parents=True)
        audio.write(tmp_path / "in" / name, bursts(1), 8000)
    run_job(SoundDetector(EnergyScorer()), [tmp_path / "in"], tmp_path / "out")
    with pytest.raises(ArgumentError, match=r"a\.wav matches 2 recordings: x/a\.wav, y/a\.wav"):
        choose_stretches(tmp_path / "out", "a.wav@0-1")


def test_what_a_job_will_have_can_be_asked_for_before_it_runs(job, tmp_path):
    audio.write(tmp_path / "new.wav", bursts(2), 8000)
    check_stretches(["new.wav@0-1", "c.wav@0-1", "a.wav@60-70", "busiest"], [tmp_path], job)  # of now, and of before
    check_stretches(["0-1"], [tmp_path], tmp_path / "out")
    check_stretches(["x.wav@0-1"], [], tmp_path / "out")  # a job without recordings is refused in its own words
    for wanted, message in (("d.wav@0-1", "the most similar name is"), ("new.wav@2-3", "is after the end of")):
        with pytest.raises(ArgumentError, match=message):
            check_stretches([wanted], [tmp_path], job)
    (tmp_path / "bad.wav").write_text("no sound")
    with pytest.raises(DataError, match=r"bad\.wav: contains text"):
        check_stretches(["bad.wav@0-1"], [tmp_path], job)
    assert not (tmp_path / "out").exists()


def test_a_recording_that_failed_cannot_be_drawn(tmp_path):
    audio.write(tmp_path / "a.wav", bursts(2), 8000)
    (tmp_path / "bad.wav").write_text("no sound")
    run_job(SoundDetector(EnergyScorer()), [tmp_path], tmp_path / "out")
    with pytest.raises(ArgumentError, match=r"figure 'bad.wav@0-1' cannot be drawn: bad\.wav: contains text"):
        choose_stretches(tmp_path / "out", "bad.wav@0-1")
    assert chosen(tmp_path / "out", "0-1") == [("a.wav", 0.0, 1.0)]


def test_a_job_without_recordings_has_none_to_draw(tmp_path):
    Ledger(JobFolder(tmp_path).ledger).close()
    assert chosen(tmp_path, "busiest") == []
    with pytest.raises(ArgumentError, match=r"recording 'a\.wav' is not in the job$"):
        choose_stretches(tmp_path, "a.wav@0-1")


def test_no_other_minute_is_busier(rng):
    for n in (1, 2, 50):
        onsets = np.sort(rng.uniform(0, 300, n))
        onset, offset = busiest([Label("a", t, t + 1, "x") for t in onsets], 300.0)
        inside = [np.sum((onsets >= t) & (onsets < t + 60)) for t in np.arange(0, 241, 0.25)]
        assert 0 <= onset < offset <= 300
        assert np.sum((onsets >= onset) & (onsets < offset)) >= max(inside) - 1  # on a whole second
    assert busiest([], 300.0) == (0.0, 60.0)
    assert busiest([Label("a", 1.0, 2.0, "x")], 20.0) == (0.0, 20.0)


@pytest.fixture
def drawn(monkeypatch):
    """What figures were made of, and not made."""
    calls = []
    monkeypatch.setattr(stretches, "recording_figure", lambda *values, **options: calls.append((values, options)))
    monkeypatch.setattr(stretches, "save", lambda figure, path: [path])
    return calls


def test_kept_scores_are_drawn_and_others_computed(job, drawn):
    wanted = choose_stretches(job, "a.wav@4.99-6.5")
    same, other = EnergyScorer(), EnergyScorer("another model")
    (file,) = draw_stretches(job, same, wanted)
    assert file == job / "figures" / "a.wav_4.99-6.5s.png"
    assert draw_stretches(job, other, wanted) == [file]
    assert same.calls == 0 < other.calls
    (kept, options), (computed, _) = drawn
    np.testing.assert_allclose(kept[2], computed[2], atol=1e-3)  # half precision is kept
    assert options["onset"] == pytest.approx(4.96)  # the frame before
    assert len(kept[0]) == round((6.5 - 4.96) * 8000)
    assert kept[2].shape == (39, 2)
    assert kept[2][1:25, 0].min() > 0.4
    assert [event.label for event in kept[4]][:2] == ["quiet", "loud"]


def test_what_lies_in_the_last_moments_can_be_drawn(job, drawn):
    draw_stretches(job, EnergyScorer(), choose_stretches(job, "c.wav@2.999-9"))
    assert drawn[0][0][2].shape == (1, 2)


def test_detect_draws_and_writes_a_page(job, monkeypatch, capsys):
    from earmark.cli import main

    monkeypatch.setattr("earmark.detection.detector.load", lambda path: SoundDetector(EnergyScorer()))
    words = ["detect", "m", str(job.parent / "in"), "--out", str(job), "--figure", "b@1-2.wav@0-2", "--report"]
    monkeypatch.setattr(sys, "argv", ["earmark", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    figure = job / "figures" / "sub" / "b@1-2.wav_0-2s.png"
    assert capsys.readouterr().out.splitlines()[-2:] == [str(figure), str(job / "report.html")]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert figure.with_suffix(".svg").is_file()
    assert (job / "report.html").read_text().count("data:image/png") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--figure", "busiest"], "--figure needs a folder to write to: add --out"),
        (["--figure", "wide", "--out", "o"], "expected busiest, ONSET-OFFSET"),
    ],
)
def test_detect_refuses_figures_before_it_begins(options, message, tmp_path, monkeypatch, capsys):
    from earmark.cli import main

    monkeypatch.setattr(sys, "argv", ["earmark", "detect", "no model", str(tmp_path), *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_times_may_be_in_seconds_minutes_or_hours():
    assert check_stretch("1:30-2:00.5") == (None, 90.0, 120.5)
