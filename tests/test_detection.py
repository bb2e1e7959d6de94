"""One recording: from a file or samples to events; spans, and how recordings are called."""

import os
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_scorer import EnergyScorer, bursts

import earmark
from earmark import audio
from earmark.annotations import Label
from earmark.checkpoint import save_detector
from earmark.datasets import Clip, Source
from earmark.detection.detector import SoundDetector, load
from earmark.detection.inputs import choose_names, find_recordings, table_name
from earmark.detection.ledger import Ledger
from earmark.detection.outputs import JobFolder, check_formats
from earmark.detection.spans import LocalExecutor, Plan, Span, plan, score_files, score_span
from earmark.errors import ArgumentError, DataError
from earmark.events import Decoder
from earmark.inference.torch_scorer import TorchScorer
from earmark.settings import load_recipe
from earmark.training import create_detector


@pytest.fixture
def sound(tmp_path):
    path = tmp_path / "sound.wav"
    audio.write(path, bursts(20, (2, 4), (10, 10.5)), 8000)
    return path


def loud(events):
    return [(round(e.onset, 2), round(e.offset, 2)) for e in events if e.label == "loud"]


def test_events_have_times_and_confidence(sound):
    events = SoundDetector(EnergyScorer()).detect(sound)
    assert np.allclose(loud(events), [(2, 4), (10, 10.5)], atol=0.04)
    assert all(event.confidence >= 0.5 for event in events)
    assert events.filenames == (str(sound),)
    assert events.classes == ("loud", "quiet")


def test_samples_files_and_lists_agree(sound, tmp_path):
    detector = SoundDetector(EnergyScorer())
    once = detector.detect(sound)
    samples = detector.detect(audio.read(sound), rate=8000)
    assert [row[1:] for row in samples] == [row[1:] for row in once]
    assert samples.filenames == ("samples",)
    other = tmp_path / "other.wav"
    audio.write(other, bursts(3), 8000)
    several = detector.detect([other, str(sound), sound])
    assert several.filenames == (str(other), str(sound))
    assert several.of(str(sound)) == tuple(once)
    decided = detector.detect(sound, decoder=Decoder(min_duration=1.0))
    assert [x for x, _ in loud(decided)] == [x for x, _ in loud(once)][:1]


@pytest.mark.parametrize("rate", [16000, np.int64(16000), np.uint16(16000), 16000.0])
def test_samples_at_another_rate_are_resampled(rate):
    events = SoundDetector(EnergyScorer()).detect(bursts(5, (1, 2), rate=16000), rate=rate)
    assert np.allclose(loud(events), [(1, 2)], atol=0.05)


def test_one_file_is_scored_like_a_list_of_one(sound):
    detector = SoundDetector(EnergyScorer())
    for one in (sound, str(sound)):
        assert [scores.filename for scores in detector.score_files(one)] == [str(sound)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d.detect(np.zeros(100)), "samples need their rate"),
        (lambda d: d.detect("x.wav", rate=8000), "rate is only for samples, a NumPy array"),
        (lambda d: d.detect(np.zeros(0), rate=8000), "expected at least one sample"),
        (lambda d: d.detect("nowhere.wav"), "nowhere.wav: no such file"),
        (lambda d: d.detect([], workers=0), "workers: expected at least 1, got 0"),
        (lambda d: d.detect([], workers=10**8), "workers: expected at most 1000, got 100000000"),
        (lambda d: d.pool, "only model.safetensors has"),
    ],
)
def test_what_cannot_be_detected_in_is_refused(call, message):
    with pytest.raises((ArgumentError, DataError), match=message):
        call(SoundDetector(EnergyScorer()))


def test_spans_cover_a_recording_once_and_change_nothing(sound):
    scorer = EnergyScorer()
    whole = plan(sound, scorer)
    assert whole.spans == (Span(sound, 0, 500),)
    assert whole.duration == 20
    cut = plan(sound, scorer, span=3.0)
    assert [span.first for span in cut.spans[1:]] == [span.last for span in cut.spans[:-1]]
    assert len(cut.spans) > 3
    assert (cut.spans[0].first, cut.spans[-1].last) == (0, 500)
    pieces = np.concatenate([score_span(scorer, span) for span in cut.spans])
    assert pieces.dtype == np.float32
    np.testing.assert_array_equal(pieces, score_span(scorer, whole.spans[0]))
    with pytest.raises(ArgumentError, match="span: expected a positive number"):
        plan(sound, scorer, span=0)
    with pytest.raises(DataError, match="stopped"):
        score_span(scorer, whole.spans[0], is_stopped=lambda: True)


def test_opus_is_one_span(tmp_path):
    path = tmp_path / "a.opus"
    audio.write(path, bursts(8, rate=48000), 48000)
    assert len(plan(path, EnergyScorer(), span=1.0).spans) == 1


def test_after_a_piece_that_failed_no_other_of_its_file_is_run(sound):
    class Failing(LocalExecutor):
        drawn = 0

        def map_spans(self, spans):
            for span in spans:
                self.drawn += 1
                yield span, DataError("broken")

    executor, handled = Failing(EnergyScorer(), 1), []
    score_files([sound], EnergyScorer(), executor, on_result=lambda path, result: handled.append(str(result)), span=2.0)
    assert handled == ["broken"]
    assert executor.drawn == 1


def test_a_file_that_shrinks_meanwhile_is_noticed(sound, monkeypatch):
    from earmark.detection import spans

    monkeypatch.setattr(spans, "score_recording", lambda *a, **k: iter([np.zeros((3, 2), np.float32)]))
    with pytest.raises(DataError, match="expected 500 frames, got 3"):
        score_span(EnergyScorer(), Span(sound, 0, 500))


def test_threads_leave_torch_as_it_was(sound):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        SoundDetector(EnergyScorer()).detect(sound, workers=2)
        assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as pool:  # a new thread begins with what was set last, in any thread
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


def save_model(path, classes=("dog", "cat"), recipe="quick", **changes):
    settings = load_recipe(recipe).changed({"width": "0.25", "pool": "cap", **changes})
    detector = create_detector(settings, classes)
    torch.nn.init.normal_(detector.head.weight, std=3.0)  # so that an untrained network has something to say
    save_detector(path, detector, network=settings.network, pool=settings.pool)
    return detector


def test_load_opens_files_and_runs_and_knows_the_pool(tmp_path):
    (tmp_path / "run").mkdir()
    save_model(tmp_path / "run" / "model.safetensors")
    detector = earmark.load(tmp_path / "run", device="cpu")
    assert detector.classes == ("dog", "cat")
    assert detector.pool.name == "cap"
    assert detector.scorer.fingerprint == load(tmp_path / "run" / "model.safetensors").scorer.fingerprint
    with pytest.raises(AttributeError, match="module 'earmark' has no attribute 'lod'"):
        earmark.lod  # noqa: B018
    with pytest.raises(ArgumentError, match="device='cuda': an ONNX model runs on the CPU"):
        load("model.onnx", device="cuda")


def test_importing_earmark_imports_nothing_else():
    code = "import sys, earmark; print([m for m in sys.modules if m.startswith(('earmark.', 'torch', 'numpy'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_clips_scored_together_are_scored_as_alone(tmp_path):
    """Also those that are sums, those longer than a window, and around one that cannot be read."""
    names = [f"{number}.wav" for number in range(8)]
    for number, name in enumerate(names):
        audio.write(tmp_path / name, bursts(3 if number < 6 else number * 5, (1, 1 + number / 4)), 8000)
    (tmp_path / "1.wav").write_text("no sound")
    clips = [Clip(name, (Source(tmp_path / name),)) for name in names]
    clips += [Clip("sum", (Source(tmp_path / "0.wav", gain=0.5), Source(tmp_path / "6.wav")))]
    clips += [Clip("excerpt", (Source(tmp_path / "7.wav", onset=0.5, offset=2.7),))]
    scorer = EnergyScorer()
    alone, failed = SoundDetector(scorer).score_clips(clips)
    scorer.clips_at_once = 4
    together, failed_too = SoundDetector(scorer).score_clips(clips)
    assert list(failed) == ["1.wav"]
    assert failed_too == failed
    assert [clip.filename for clip in together] == [clip.filename for clip in alone]
    for one, other in zip(alone, together, strict=True):
        assert (one.p == other.p).all()
        assert (one.duration, one.frames) == (other.duration, other.frames)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("recipe", ["quick", "best"])
def test_clips_scored_together_on_a_gpu_are_those_of_a_cpu(recipe, tmp_path):
    """Of three lengths, one of them longer than a window."""
    for number in range(9):
        audio.write(tmp_path / f"{number}.wav", bursts((2, 3, 25)[number % 3], (1, 1.5)), 8000)
    clips = [Clip(path.name, (Source(path),)) for path in sorted(tmp_path.glob("*.wav"))]
    model = create_detector(load_recipe(recipe), ("dog", "cat"))
    here, there = (SoundDetector(TorchScorer(model, device=device)) for device in ("cpu", "cuda"))
    for one, other in zip(here.score_clips(clips)[0], there.score_clips(clips)[0], strict=True):
        np.testing.assert_allclose(one.p, other.p, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a b/ünï.wav", "a b/ünï.wav"),
        ("a\nb\tc\r.wav", "a%0Ab%09c%0D.wav"),
        ('it\'s "one".wav', 'it\'s "one".wav'),
        ("back\\slash.wav", "back%5Cslash.wav"),
        (os.fsdecode(b"\xff\xfe.wav"), "%FF%FE.wav"),
        (" x /y.wav ", "%20x%20/y.wav%20"),
    ],
)
def test_names_are_such_that_every_table_can_say_them(name, wanted):
    assert table_name(name) == wanted


def test_no_two_recordings_share_a_name():
    a, b, c = Path("/1/data"), Path("/2/data"), Path("/3/data")
    found = [(a, a / "x.wav"), (b, b / "x.wav"), (c, c / "x.wav"), (a, a / "x%0A.wav"), (a, a / "x\n.wav")]
    names = [name for _, name in choose_names(found, {})]
    assert names == ["x.wav", "data/x.wav", "data-2/x.wav", "x%0A.wav", "data/x%0A.wav"]
    known = dict(choose_names(found, {}))
    assert choose_names(reversed(found), known) == [(path, known[path]) for _, path in reversed(found)]
    assert choose_names([(Path("/"), Path("/x.wav"))], {Path("/y"): "x.wav"}) == [(Path("/x.wav"), "root/x.wav")]


def test_recordings_are_found_once_and_never_in_the_output(tmp_path):
    for name in ("b.wav", "a.flac", "sub/c.mp3", "out/events/d.wav", "out2/e.wav", "notes.txt", "sub/f.M4A"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = find_recordings([tmp_path, tmp_path / "b.wav", tmp_path / "sub" / ".." / "b.wav"], tmp_path / "out")
    assert [path.relative_to(tmp_path).as_posix() for _, path in found] == [
        "a.flac",
        "b.wav",
        "out2/e.wav",
        "sub/c.mp3",
        "sub/f.M4A",  # to be refused with the reason
    ]
    with pytest.raises(ArgumentError, match="contains the recordings; choose another folder"):
        find_recordings([tmp_path], tmp_path)


def test_names_too_long_for_a_file_system_are_cut_and_told_apart(tmp_path):
    folder = JobFolder(tmp_path)
    one, two = folder.labels("x" * 240 + "1.wav", "raven"), folder.labels("x" * 240 + "2.wav", "raven")
    assert one != two
    assert len(one.name) < 220
    assert one.name.endswith(".selections.txt")


def test_formats_are_known_and_do_not_collide():
    assert check_formats(["tsv", "raven", "tsv"]) == ("tsv", "raven")
    with pytest.raises(ArgumentError, match="did you mean 'raven'"):
        check_formats(["ravn"])
    with pytest.raises(ArgumentError, match=r"formats csv and dcase2017 both write .csv"):
        check_formats(["csv", "dcase2017"])
    with pytest.raises(ArgumentError, match="no format is given"):
        check_formats([])


def test_a_ledger_keeps_any_name_and_each_state(tmp_path):
    strange = Path(os.fsdecode(b"/x/\xff\n'.wav"))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.add([(strange, "a"), (Path("/b"), "b")])
        ledger.add([(strange, "other")])
        assert {entry.path: entry.name for entry in ledger.entries()} == {strange: "a", Path("/b"): "b"}
        assert ledger.entry(strange).state == "pending"
        ledger.fail(strange, "no good")
        assert [(e.path, e.reason) for e in ledger.entries("failed")] == [(strange, "no good")]
        assert ledger.counts() == {"pending": 1, "failed": 1}
        with pytest.raises(ArgumentError, match="/c is not in the ledger"):
            ledger.entry(Path("/c"))
        with pytest.raises(ArgumentError, match="/c is not in the ledger"):
            ledger.fail(Path("/c"), "x")
    with Ledger(tmp_path / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.counts()["failed"] == 1
        with pytest.raises(DataError, match="ledger cannot be used: attempt to write a readonly database"):
            ledger.begin(strange)
    with pytest.raises(ArgumentError, match="no such ledger"):
        Ledger(tmp_path / "none.sqlite", read_only=True)


def test_a_ledger_keeps_its_journal_while_it_is_open_and_is_one_file_afterwards(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        ledger.add([(Path("/a"), "a")])
        ledger.begin(Path("/a"))
        assert (tmp_path / "l-journal").stat().st_size == 0  # emptied: to remove it each time costs most of a change
        with Ledger(tmp_path / "l", read_only=True) as reader:
            assert reader.counts()["pending"] == 1
        assert sorted(os.listdir(tmp_path)) == ["l", "l-journal"]
    assert os.listdir(tmp_path) == ["l"]


def test_a_file_that_changed_loses_its_results_when_it_is_read(tmp_path):
    path, before = Path("/a"), os.stat(tmp_path)
    os.utime(tmp_path, (1, 1))
    with Ledger(tmp_path / "l") as ledger:
        ledger.add([(path, "a")])
        ledger.set_presence(path, 1.0, np.array([[0.0, 1.0, 0.5]]))
        ledger.finish(path, [Label("a", 0.0, 1.0, "dog")], status=before, duration=1.0)
        assert [(name, values.tolist()) for name, values in ledger.all_presence(1.0)] == [("a", [0.0, 1.0, 0.5])]
        assert (ledger.entry(path).state, len(ledger.events(ledger.entry(path)))) == ("done", 1)
        ledger.begin(path, before)
        ledger.release([path])
        assert (ledger.entry(path).state, ledger.entry(path).attempts) == ("done", 0)
        ledger.begin(path, os.stat(tmp_path))
        assert (ledger.entry(path).state, ledger.entry(path).attempts) == ("pending", 1)
        assert (ledger.events(ledger.entry(path)), list(ledger.all_presence(1.0))) == ([], [])


def test_a_ledger_of_another_version_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "l")) as database:
        database.execute("CREATE TABLE files (id INTEGER)")
    for read_only in (False, True):
        with pytest.raises(ArgumentError, match="written by another version of earmark; choose another folder"):
            Ledger(tmp_path / "l", read_only=read_only)


def test_a_ledger_that_is_none_is_refused(tmp_path):
    (tmp_path / "l").write_text("not a database, and long enough to be looked at " * 30)
    with pytest.raises(DataError, match="ledger cannot be used: file is not a database"):
        Ledger(tmp_path / "l")


def test_a_plan_says_how_long_the_recording_is(sound):
    assert isinstance(plan(sound, EnergyScorer()), Plan)
    assert plan(sound, EnergyScorer()).frames == 2001
