"""Seventeen ways in which version 0.1.0 lost files, hung or printed tracebacks; each of these tests fails there."""

import gzip
import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import warm
from in_process import call_here

from earmark import audio
from earmark.checkpoint import save_detector
from earmark.settings import load_recipe
from earmark.training import create_detector

ROOT = Path(__file__).parents[1]
RATE = 22050
ESCAPE = "\x1b]0;taken\x07dog"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Features are cached in the test's own folder."""
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def refused(earmark):
    """Runs a command that must end with one line and exit code 2; returns the line."""

    def call(*words):
        code, _, err = earmark(*words)
        assert (code, err.count("\n")) == (2, 1), err
        return err

    return call


def make_model(path, classes=("dog", "owl"), change=None):
    settings = load_recipe("quick").changed({"width": "0.25", "scaling": "fixed", "pool": "auto"})
    detector = create_detector(settings, classes)
    if change is not None:
        with torch.no_grad():
            change(detector)
    path.parent.mkdir(exist_ok=True)
    save_detector(path, detector, network=settings.network, pool=settings.pool)
    (path.parent / "config.toml").write_text(settings.to_toml())
    return path


@pytest.fixture
def model(tmp_path):
    return make_model(tmp_path / "run" / "model.safetensors")


@pytest.fixture
def sounds(tmp_path):
    """A folder of labelled clips."""
    folder = tmp_path / "sounds"
    folder.mkdir()
    rows = ["filename,onset,offset,label,split"]
    rng = np.random.default_rng(0)
    for k in range(12):
        split = ("train", "train", "validate", "test")[k % 4]
        audio.write(folder / f"{k}.wav", 0.1 * rng.standard_normal(2 * RATE), RATE)
        rows.append(f"{k}.wav,0.5,1.5,{'dog' if k % 3 else 'owl'},{split}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_1_detect_deletes_no_file_of_the_user(earmark, model, sounds, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.png").write_text("mine")
    earmark("detect", model, sounds, "--out", out)
    (out / "report.html").write_text("mine")
    (out / "figures").symlink_to(elsewhere)
    earmark("detect", model, sounds, "--out", out, "--threshold", "0.1")
    assert (out / "report.html").read_text() == "mine"
    assert (elsewhere / "mine.png").exists()


def change_ledger(out, changes, *values):
    """Change recordings; their table was called files in 0.1.0."""
    with sqlite3.connect(out / "ledger.sqlite") as ledger:
        tables = {name for (name,) in ledger.execute("SELECT name FROM sqlite_master")}
        ledger.execute(next(change for table, change in changes.items() if table in tables), values)
    ledger.close()


def test_3_a_recording_that_was_read_when_the_machine_died_twice_is_read_again(
    earmark, model, sounds, tmp_path, monkeypatch
):
    """In a process of its own; tests/test_detection_job.py starts it."""
    monkeypatch.setattr("earmark.isolation.IsolatedProcess.call", call_here)
    out = tmp_path / "out"
    earmark("detect", model, sounds, "--out", out)
    changes = {
        "recordings": "UPDATE recordings SET decoder = NULL, attempts = 2 WHERE name = '3.wav'",
        "files": "UPDATE files SET state = 'running', attempts = 2 WHERE name = '3.wav'",
    }
    change_ledger(out, changes)
    code, told, _ = earmark("detect", model, sounds, "--out", out)
    assert code == 0
    assert told.startswith("12 of 12 recordings done, 11 of them earlier")


def test_4_a_file_from_the_year_2264_stops_nothing(earmark, model, sounds, tmp_path):
    os.utime(sounds / "3.wav", (9_290_000_000, 9_290_000_000))
    assert earmark("detect", model, sounds, "--out", tmp_path / "out")[0] == 0


TRAIN = [sys.executable, "-m", "earmark.cli", "train"]
SHORT = ["--recipe", "quick", *(f"--set={s}" for s in ("steps=5", "batch_size=2", "width=0.25", "stop_epochs=9999"))]


@pytest.fixture
def training(sounds, tmp_path):
    """A training that runs, and has written its first state."""
    words = [*TRAIN, str(sounds), "--out", str(tmp_path / "trained"), *SHORT, "--set", "epochs=9999"]
    environment = {**os.environ, "EARMARK_CACHE": str(tmp_path / "cache")}
    process = warm.Popen(words, env=environment, stdout=warm.PIPE, stderr=warm.PIPE, text=True)
    while not (tmp_path / "trained" / "last.ckpt").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    yield process
    process.kill()
    process.communicate()


def test_5_and_6_a_training_is_alone_in_its_folder_and_saves_its_state_when_asked_to_stop(
    training, refused, sounds, tmp_path
):
    out = tmp_path / "trained"
    err = refused("train", sounds, "--out", out, *SHORT, "--set", "epochs=9999", "--resume")
    assert f"process {training.pid} on " in err
    time.sleep(0.5)
    before = (out / "last.ckpt").read_bytes()
    training.send_signal(signal.SIGTERM)
    told, _ = training.communicate(timeout=120)
    assert training.returncode == 143
    assert "continue with: earmark train" in told
    assert (out / "last.ckpt").read_bytes() != before


def test_7_no_file_of_the_user_is_replaced(refused, earmark, model, sounds, tmp_path):
    mine = "mine\n"
    new = tmp_path / "new"
    new.mkdir()
    (new / "config.toml").write_text(mine)
    assert "config.toml exists" in refused("train", sounds, "--out", new, *SHORT)
    code, _, err = earmark("evaluate", model, sounds)
    assert code == 0, err
    (model.parent / "events.tsv").write_text(mine)
    assert "events.tsv exists" in refused("evaluate", model, sounds)
    (tmp_path / "paper.tex").write_text(mine)
    assert "paper.tex exists" in refused("report", model.parent, "--out", tmp_path / "paper.html")
    (tmp_path / "other.onnx").write_text(mine)
    assert "other.onnx exists" in refused("export", model, "--out", tmp_path / "other.onnx")
    for path in (new / "config.toml", model.parent / "events.tsv", tmp_path / "paper.tex", tmp_path / "other.onnx"):
        assert path.read_text() == mine
    assert earmark("evaluate", model, sounds, "--force")[0] == 0
    assert (model.parent / "events.tsv").read_text() != mine


@pytest.mark.parametrize("name", ["../../theirs.wav", "{tmp_path}/theirs.wav"])
def test_8_a_crafted_ledger_names_no_file_elsewhere(name, refused, earmark, model, sounds, tmp_path):
    out = tmp_path / "out"
    earmark("detect", model, sounds, "--out", out)
    changes = {table: f"UPDATE {table} SET name = ? WHERE id = 1" for table in ("recordings", "files")}
    change_ledger(out, changes, name.format(tmp_path=tmp_path))
    assert "name: expected a relative path" in refused("detect", model, sounds, "--out", out, "--threshold", "0.1")


def test_2_damaged_opus_is_not_accepted_with_wrong_times(refused, model, tmp_path):
    path = tmp_path / "night.opus"
    noise = 0.1 * np.random.default_rng(0).standard_normal(60 * 48000)
    soundfile.write(path, noise, 48000, format="OGG", subtype="OPUS")
    content = bytearray(path.read_bytes())
    pages = [at for at in range(len(content)) if content.startswith(b"OggS", at)]
    for page in pages[10:30:4]:
        content[page + 100] ^= 1
    path.write_bytes(content)
    assert "audio is missing from " in refused("detect", model, path)


def test_9_a_small_compressed_table_does_not_fill_the_memory(refused, model, tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_LARGEST_TABLE", "1M")
    labels, events = tmp_path / "labels.csv.gz", tmp_path / "events.csv"
    labels.write_bytes(gzip.compress(b"filename,onset,offset,label\n" + b"a.wav,0,1,dog\n" * 200_000))
    events.write_text("filename,onset,offset,label\na.wav,0,1,dog\n")
    assert "labels.csv.gz" in refused("evaluate", events, labels, "--out", tmp_path / "out")


def test_10_an_alpha_that_is_no_number_is_refused(refused, sounds, tmp_path):
    path = tmp_path / "nan" / "model.safetensors"
    model = make_model(path, change=lambda detector: detector.pool.alpha.fill_(np.nan))
    err = refused("detect", model, sounds, "--out", tmp_path / "out", "--presence", "recording")
    assert "pool.alpha: expected finite numbers" in err


def test_11_an_excerpt_at_an_odd_rate_is_not_decoded_from_the_start(tmp_path, monkeypatch):
    path = tmp_path / "long.wav"
    soundfile.write(path, np.zeros(44056 * 300, np.float32), 44056)
    counts, read = [], soundfile.SoundFile.read

    def counted(file, frames=-1, **options):
        counts.append(frames)
        return read(file, frames, **options)

    monkeypatch.setattr(soundfile.SoundFile, "read", counted)
    assert len(audio.read(path, rate=44100, onset=290.0)) == 441_000
    assert sum(counts) < 44056 * 100


def test_12_an_absurd_time_in_labels_is_one_line(refused, sounds, tmp_path):
    labels = (sounds / "labels.csv").read_text()
    (sounds / "labels.csv").write_text(labels.replace("0.wav,0.5,1.5", "0.wav,0.5,1e308"))
    assert "labels.csv" in refused("train", sounds, "--out", tmp_path / "new", *SHORT)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"classes": 3}'])
def test_12_absurd_thresholds_are_one_line(content, refused, model, sounds, tmp_path):
    (tmp_path / "scores.json").write_text(content)
    assert "scores.json" in refused("detect", model, sounds / "0.wav", "--thresholds", tmp_path / "scores.json")


def test_13_a_damaged_cache_is_not_trained_on(earmark, sounds, tmp_path):
    words = ["train", sounds, "--cache", tmp_path / "features", *SHORT, "--set", "epochs=1", "--out"]
    assert earmark(*words, tmp_path / "first")[0] == 0
    for features in (tmp_path / "features").rglob("features.bin"):
        features.write_bytes(bytes(features.stat().st_size))
    assert earmark(*words, tmp_path / "second")[0] == 0
    first, second = ((tmp_path / run / "log.jsonl").read_text().splitlines()[0] for run in ("first", "second"))
    assert json.loads(first)["loss"] == json.loads(second)["loss"]


def test_14_an_onnx_file_without_its_seal_is_not_run(refused, sounds, tmp_path, monkeypatch):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph)
    model.metadata_props.add(key="earmark", value="{}")
    onnx.save(model, tmp_path / "model.onnx")
    monkeypatch.setattr(onnxruntime, "InferenceSession", lambda *_, **__: pytest.fail("a session was built"))
    assert "model.onnx" in refused("detect", tmp_path / "model.onnx", sounds / "0.wav")


def loud_model(path, label):
    """A model that finds one class everywhere."""
    return make_model(path, (label,), lambda model: (model.head.weight.zero_(), model.head.bias.fill_(5.0)))


def test_15_names_do_not_reach_the_terminal_or_a_spreadsheet_as_commands(earmark, sounds, tmp_path):
    _, out, _ = earmark("detect", loud_model(tmp_path / "a" / "model.safetensors", ESCAPE), sounds / "0.wav")
    assert "taken" in out
    assert not {"\x1b", "\x07"} & set(out)
    model = loud_model(tmp_path / "b" / "model.safetensors", "=cmd|calc!A0")
    earmark("detect", model, sounds / "0.wav", "--out", tmp_path / "out", "--report")
    assert ",=cmd" not in (tmp_path / "out" / "events.csv").read_text()
    assert "Content-Security-Policy" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_16_clusters_need_a_ray_with_tokens():
    """Of the tree that this file is in. tests/test_cluster.py looks at where a local one listens."""
    requirement = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("ray>=")[2]
    assert tuple(map(int, requirement.split('"')[0].split(".")[:2])) >= (2, 52)


def test_17_a_full_disk_is_reported_with_the_name_of_the_file(tmp_path):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(Exception, match=r"big.wav: cannot be written: File too large"):
            audio.write(tmp_path / "big.wav", np.zeros(100_000), 44100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())
