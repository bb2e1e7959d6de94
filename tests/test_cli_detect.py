"""`earmark detect`, by what it prints, writes and how it exits."""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark import audio
from earmark.checkpoint import save_detector
from earmark.formats import read_labels
from earmark.settings import load_recipe
from earmark.training import create_detector


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained network that is sure of a dog and never of a cat."""
    torch.manual_seed(0)
    settings = load_recipe("quick").changed({"width": "0.25", "pool": "max"})
    detector = create_detector(settings, ("dog", "cat"))
    torch.nn.init.zeros_(detector.head.weight)
    detector.head.bias.data = torch.tensor([0.7, -3.0])  # p = 0.668 and 0.047
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_detector(path, detector, network=settings.network, pool=settings.pool)
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "sub").mkdir()
    for name in ("a.wav", "sub/a.wav"):
        audio.write(folder / name, np.zeros(44100), 22050)
    return folder


def test_a_folder_becomes_a_folder_of_events(earmark, model, recordings, tmp_path):
    code, out, err = earmark("detect", model, recordings, "--out", tmp_path / "o", "--format", "tsv, raven")
    assert (code, err) == (0, "")
    assert out.startswith(f"2 of 2 recordings done; 2 events in {tmp_path / 'o' / 'events.csv'}\n")
    assert "times real time" in out
    table = read_labels(tmp_path / "o" / "events.csv")
    assert table.filenames == ("a.wav", "sub/a.wav")
    assert {(e.label, e.onset, e.offset, round(e.confidence, 2)) for e in table} == {("dog", 0.0, 2.0, 0.67)}
    assert (tmp_path / "o" / "events" / "sub" / "a.wav.selections.txt").exists()
    code, out, _ = earmark("detect", model, recordings, "--out", tmp_path / "o", "--format", "tsv,raven", "--json")
    told = json.loads(out)
    assert (code, told["kept"], told["done"], told["files"]) == (0, 2, 0, 2)
    assert "earmark detect" in json.loads((tmp_path / "o" / "job.json").read_text())["command"]


def test_files_of_the_user_in_the_folder_of_a_job_are_reported_once(earmark, model, recordings, tmp_path):
    for name in ("o", "p"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    job = ("detect", model, recordings / "a.wav", "--out", tmp_path / "o")
    note = f"Note: {tmp_path / 'o'} already contains other files, which stay as they are: notes.txt\n"
    code, out, err = earmark(*job)
    assert (code, err, out.startswith(note)) == (0, "", True)
    assert "Note" not in earmark(*job)[1]  # it continues a job
    assert json.loads(earmark(*job[:-1], tmp_path / "p", "--json")[1])["done"] == 1


def test_without_a_folder_events_are_printed(earmark, model, recordings):
    code, out, err = earmark("detect", model, recordings / "a.wav")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["onset", "offset", "label", "confidence"],
        ["0.000", "2.000", "dog", "0.668"],
    ]
    _, out, _ = earmark("detect", model, recordings)
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["a.wav", "sub/a.wav"]
    _, out, _ = earmark("detect", model, recordings, recordings / "sub" / "gone.wav", "--json")
    told = json.loads(out)
    assert [event["filename"] for event in told["events"]] == ["a.wav", "sub/a.wav"]
    assert told["failed"] == {"gone.wav": "no such file"}
    _, out, _ = earmark("detect", model, recordings / "a.wav", "--json")
    (event,) = json.loads(out)["events"]
    assert (event["label"], event["onset"], event["offset"]) == ("dog", 0.0, 2.0)


def test_thresholds_can_be_given_in_several_ways(earmark, model, recordings, tmp_path):
    def labels(*options):
        code, out, err = earmark("detect", model, recordings / "a.wav", "--json", *options)
        assert code == 0, err
        return [event["label"] for event in json.loads(out)["events"]]

    assert labels("--threshold", "0.04") == ["dog", "cat"]
    assert labels("--threshold", "0.9") == []
    assert labels("--min-duration", "3") == []
    tuned = tmp_path / "scores.json"
    tuned.write_text(json.dumps({"decoder": {"threshold": [0.9, 0.04], "tuned_on": "validate"}}))
    assert labels("--thresholds", tuned) == ["cat"]
    assert labels("--thresholds", tuned, "--min-duration", "3", "--median", "0.5", "--min-gap", "1") == []
    tuned.write_text(json.dumps({"threshold": 0.04}))
    assert labels("--thresholds", tuned) == ["dog", "cat"]


def test_presence_and_scores(earmark, model, recordings, tmp_path):
    out = tmp_path / "o"
    assert earmark("detect", model, recordings, "--out", out, "--presence", "minute", "--keep-scores")[0] == 0
    lines = (out / "presence.csv").read_text().splitlines()
    assert lines[0] == "filename,onset,offset,dog,cat"
    assert [line.split(",")[0] for line in lines[1:]] == ["a.wav", "sub/a.wav"]
    assert float(lines[1].split(",")[3]) == pytest.approx(0.668, abs=1e-3)
    code, told, _ = earmark("detect", model, recordings, "--out", out, "--presence", "1.5", "--keep-scores")
    assert code == 0
    assert "2 from stored results" in told
    assert f"probabilities of 2 recordings in {out / 'presence.csv'}\n" in told
    assert len((out / "presence.csv").read_text().splitlines()) == 5
    options = ("--presence", "recording", "--keep-scores", "--report")
    assert earmark("detect", model, recordings, "--out", out, *options)[0] == 0
    page = re.sub(r"(\s|<[^>]+>)+", " ", (out / "report.html").read_text())
    assert " presence recording " in page


def test_failed_recordings_are_counted_and_listed(earmark, model, recordings, tmp_path):
    (tmp_path / "bad.wav").write_text("no sound")
    code, out, err = earmark("detect", model, recordings, tmp_path / "bad.wav", "--out", tmp_path / "o")
    assert (code, err) == (1, "")
    start = f"1 failed: {tmp_path / 'o' / 'failed.csv'} has the reasons, such as bad.wav: contains text"
    assert out.splitlines()[-1].startswith(start)
    code, out, err = earmark("detect", model, tmp_path / "bad.wav", "--out", tmp_path / "p")
    assert code == 1
    assert err == (
        "earmark: the recording could not be read: bad.wav: contains text; earmark reads aiff, flac, mp3, ogg, opus "
        "and wav\n"
    )
    code, out, err = earmark("detect", model, tmp_path / "bad.wav", recordings / "a.wav")
    assert code == 1
    assert "dog" in out
    assert err == f"earmark: {tmp_path / 'bad.wav'}: contains text; earmark reads aiff, flac, mp3, ogg, opus and wav\n"
    code, out, err = earmark("detect", model, tmp_path / "bad.wav")
    assert code == 2
    assert err.count("\n") == 1


def test_what_telephones_record_is_not_passed_over(earmark, model, recordings, tmp_path):
    folder = tmp_path / "phone"
    folder.mkdir()
    for name in ("a.m4a", "b.MP4"):
        (folder / name).write_bytes(b"\0\0\0\x20ftypM4A " + bytes(60))
    commands = [f"ffmpeg -i {folder / name} -vn {folder / name[0]}.flac" for name in ("a.m4a", "b.MP4")]
    code, out, err = earmark("detect", model, folder)
    assert (code, out, err.count("\n")) == (2, "", 3)
    for line, command in zip(err.splitlines(), commands, strict=False):
        assert "contains MP4 (AAC or ALAC)" in line
        assert line.endswith(f"convert it: {command}")
    code, out, err = earmark("detect", model, folder, "--out", tmp_path / "o")
    assert (code, err.count("\n")) == (1, 1)
    assert "none of 2 recordings could be read; for example, a.m4a: contains MP4 (AAC or ALAC); earmark reads" in err
    assert commands[0] in err
    audio.write(folder / "c.wav", np.zeros(22050), 22050)
    code, out, err = earmark("detect", model, folder, "--out", tmp_path / "o")
    assert (code, err) == (1, "")
    assert out.startswith("1 of 3 recordings done; 1 event in")
    start = f"2 failed: {tmp_path / 'o' / 'failed.csv'} has the reasons, such as "
    assert out.splitlines()[-1].startswith(start)
    assert [line.split(",")[0] for line in (tmp_path / "o" / "failed.csv").read_text().splitlines()[1:]] == [
        "a.m4a",
        "b.MP4",
    ]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("aa.wav@0-1", "recording 'aa.wav' is not in the job; the most similar name is "),
        ("sub/b.wav@0-1", "recording 'sub/b.wav' is not in the job; the most similar name is sub/a.wav\n"),
        ("0-1", "the job has 2 recordings; name one"),
        ("sub/a.wav@9-10", "is after the end of sub/a.wav, which lasts 0:00:02"),
    ],
)
def test_a_figure_that_cannot_be_is_refused_before_the_job_runs(wanted, message, earmark, model, recordings, tmp_path):
    code, out, err = earmark("detect", model, recordings, "--out", tmp_path / "o", "--figure", wanted)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "o").exists()


def test_a_job_goes_on_after_figures_of_recordings_in_folders(earmark, model, tmp_path, drawn_figures):
    nest, out = tmp_path / "nest", tmp_path / "o"
    (nest / "north").mkdir(parents=True)
    audio.write(nest / "north" / "a.flac", np.zeros(22050), 22050)
    code, _, err = earmark("detect", model, nest, "--out", out, "--figure", "busiest")
    assert (code, err) == (0, "")
    assert len(list((out / "figures" / "north").iterdir())) == 2
    audio.write(nest / "north" / "b.flac", np.zeros(22050), 22050)
    code, told, err = earmark("detect", model, nest, "--out", out)
    assert (code, err) == (0, "")
    assert told.startswith("2 of 2 recordings done, 1 of them earlier")
    assert not (out / "figures").exists()


def test_names_that_are_no_text_can_be_given_and_printed(earmark, model, tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9\n.wav"))
    audio.write(path, np.zeros(22050), 22050)
    code, out, err = earmark("detect", model, path, "--out", tmp_path / "o")
    assert (code, err) == (0, "")
    assert (tmp_path / "o" / "events" / "caf%E9%0A.wav.tsv").exists()
    code, out, err = earmark("detect", model, path, path.with_name("gone.wav"))
    assert code == 1
    assert out.splitlines()[-1].endswith("  caf%E9%0A.wav")


def test_interrupted_it_says_how_to_go_on(earmark, model, recordings, tmp_path, monkeypatch):
    from earmark.detection import job

    def interrupt(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(job, "score_files", interrupt)
    code, out, err = earmark("detect", model, recordings, "--out", tmp_path / "o")
    assert (code, out) == (130, "")
    assert err == (
        f"earmark: interrupted; 2 recordings still to do; results so far are in {tmp_path / 'o'}; run the same command "
        "again to continue\n"
    )


def test_interrupted_with_another_threshold_it_says_how_much_is_left(earmark, model, recordings, tmp_path, monkeypatch):
    from earmark.detection import job

    def interrupt(paths, *args, **options):
        score_files(paths[:1], *args, **options)
        raise KeyboardInterrupt

    assert earmark("detect", model, recordings, "--out", tmp_path / "o")[0] == 0
    score_files = job.score_files
    with monkeypatch.context() as patch:
        patch.setattr(job, "score_files", interrupt)
        code, _, err = earmark("detect", model, recordings, "--out", tmp_path / "o", "--threshold", "0.6")
    assert (code, err.startswith("earmark: interrupted; 1 recording still to do; results so far are in")) == (130, True)
    assert read_labels(tmp_path / "o" / "events.csv").filenames == ("a.wav",)
    _, out, _ = earmark("detect", model, recordings / "a.wav", "--out", tmp_path / "o", "--threshold", "0.6")
    assert out.splitlines() == [
        f"1 of 1 recordings done, 1 of them earlier; 1 event in {tmp_path / 'o' / 'events.csv'}",
        "1 recording of earlier runs pending: not in events.csv yet",
    ]


def test_what_changed_by_hand_and_what_is_gone_is_said(earmark, model, tmp_path):
    folder, out = tmp_path / "in", tmp_path / "o"
    folder.mkdir()
    for name in ("a.wav", "b.wav"):
        audio.write(folder / name, np.zeros(22050), 22050)
    assert earmark("detect", model, folder, "--out", out)[0] == 0
    (out / "events.csv").write_text("filename,label\na.wav,owl\n")
    (folder / "b.wav").unlink()
    _, told, _ = earmark("detect", model, folder, "--out", out)
    assert told.splitlines() == [
        f"1 of 1 recordings done, 1 of them earlier; 1 event in {out / 'events.csv'}",
        "1 recording no longer found: omitted from events.csv; their files in events are kept",
        "1 file edited or added by you: renamed with .edited in the name",
    ]
    assert "owl" in (out / "events.edited.csv").read_text()


def test_thresholds_of_a_file_go_by_the_names_of_its_classes(earmark, model, recordings, tmp_path):
    tuned = tmp_path / "scores.json"

    def found(classes, threshold=(0.9, 0.04, 0.9), *options):
        tuned.write_text(json.dumps({"classes": classes, "decoder": {"threshold": threshold}}))
        return earmark("detect", model, recordings / "a.wav", "--json", "--thresholds", tuned, *options)

    for classes, threshold in ((["dog", "cat"], (0.9, 0.04)), (["owl", "cat", "dog"], (0.9, 0.04, 0.9))):
        code, out, err = found(classes, threshold)
        assert [event["label"] for event in json.loads(out)["events"]] == ["cat"], err
    code, out, _ = found(["cat", "dog"], (0.9, 0.04))
    assert [event["label"] for event in json.loads(out)["events"]] == ["dog"]
    code, out, _ = found(["owl", "frog"], 0.04)  # one for all
    assert len(json.loads(out)["events"]) == 2
    code, out, err = found(["cat", "owl", "frog"])
    assert (code, out) == (2, "")
    assert err == (f"earmark: {tuned}: no thresholds for dog; tune them with this model: earmark evaluate --tune-on\n")
    code, _, err = found(["cat", "owl", "frog"], (0.9, 0.04, 0.9), "--live")
    assert (code, "no thresholds for dog" in err) == (2, True)
    code, _, err = found(["cat", "dog"])
    assert (code, err) == (2, f"earmark: {tuned}: threshold: expected 2 values, one per class, got 3\n")
    code, _, err = found("cat")
    assert (code, err) == (2, f"earmark: {tuned}: classes: expected a list of texts, got 'cat'\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep-scores"], "--keep-scores needs a folder to write to: add --out"),
        (["--presence", "hour"], "--presence needs a folder to write to"),
        (["--report"], "--report needs a folder to write to"),
        (["--out", "o", "--presence", "week"], "--presence: expected minute, hour, recording or a number of seconds"),
        (["--out", "o", "--format", "tvs"], "format='tvs' is not known; did you mean 'tsv'?"),
        (["--out", "o", "--workers", "0"], "workers: expected at least 1, got 0"),
        (["--threshold", "1.5"], "threshold: expected a value in [0, 1]"),
        (["--threshold", "0.5", "--thresholds", "t.json"], "--threshold and --thresholds cannot be combined"),
        (["--thresholds", "none.json"], "none.json: No such file or directory"),
        (["--thresholds", "bad.json"], "bad.json: not valid JSON"),
        (["--thresholds", "list.json"], "list.json: expected a table, got [1]"),
        (["--out", "a.wav"], "a.wav: cannot create this folder: File exists"),
        (["--out", "."], "contains the recordings; choose another folder"),
    ],
)
def test_mistakes_are_one_line(options, message, earmark, model, recordings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    audio.write(tmp_path / "a.wav", np.zeros(22050), 22050)
    code, out, err = earmark("detect", model, tmp_path, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_nothing_to_hear_is_one_line(earmark, model, tmp_path):
    for options in ([], ["--out", tmp_path / "o"]):
        code, _, err = earmark("detect", model, tmp_path, *options)
        assert (code, err) == (2, f"earmark: {tmp_path}: no audio files found\n")
    code, _, err = earmark("detect", model, tmp_path / "nowhere", "--out", tmp_path / "o")
    assert (code, err) == (2, f"earmark: {tmp_path / 'nowhere'}: no such file or folder\n")
    assert not (tmp_path / "o").exists()
    code, _, err = earmark("detect", tmp_path / "no.safetensors", tmp_path)
    assert (code, err) == (2, f"earmark: {tmp_path / 'no.safetensors'}: no such file\n")
