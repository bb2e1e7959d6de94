"""A disk that is full, or a file that may not grow: one line with the name of the file, whatever library writes it."""

import errno
import os
import shutil
import subprocess
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from fake_scorer import EnergyScorer, bursts
from matplotlib.figure import Figure

from earmark import audio
from earmark.annotations import LabelTable
from earmark.bags.store import _appending
from earmark.checkpoint import write_tensors
from earmark.detection.live import listen
from earmark.detection.outputs import growing_table
from earmark.events import Decoder
from earmark.files import locked, written_whole
from earmark.formats import write_labels
from earmark.inference.scores import RecordingScores, write_scores
from earmark.ownership import MANIFEST, owned
from earmark.plots import save

pytestmark = pytest.mark.usefixtures("drawn_figures")

resource = pytest.importorskip("resource", reason="this system has no limits on processes")
TOO_LARGE = os.strerror(errno.EFBIG)
FULL = os.strerror(errno.ENOSPC)
NOISE = np.random.default_rng(0).uniform(-1, 1, 100_000)


def draw(path):
    figure = Figure()
    figure.subplots().imshow(NOISE[:90_000].reshape(300, 300))
    save(figure, path)


def write_table(path):
    rows = [(f"{k}.wav", 0, 1, str(value)) for k, value in enumerate(NOISE[:20_000])]
    write_labels(LabelTable(rows), path, "tsv")


def copy(path):
    source = path.with_name("source")
    with written_whole(path) as draft:
        shutil.copyfile(source, draft)


WRITERS = {
    "sound.wav": lambda path: audio.write(path, NOISE, 8000),
    "sound.flac": lambda path: audio.write(path, NOISE, 8000),
    "sound.ogg": lambda path: audio.write(path, NOISE, 8000),
    "sound.mp3": lambda path: audio.write(path, np.tile(NOISE, 5), 32000),
    "scores.npz": lambda path: write_scores(
        path, RecordingScores("a.wav", ("a",), NOISE[:, None].astype(np.float32), 0.01, 1, len(NOISE), 1000.0)
    ),
    "model.safetensors": lambda path: write_tensors(path, "state", {"a": torch.from_numpy(NOISE)}, {}),
    "figure.png": draw,
    "labels.tsv": write_table,
    "labels.tsv.gz": write_table,
    "copy.bin": copy,
}


@contextmanager
def limited(size):
    """Files may not grow beyond some bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def small_disk(place):
    """A disk of 24 kB."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def message(error):
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_may_not_grow_is_named(tmp_path, name):
    (tmp_path / "source").write_bytes(bytes(1 << 20))
    with pytest.raises((OSError, ValueError)) as failed, limited(15_000):
        WRITERS[name](tmp_path / name)
    assert message(failed.value) == f"{tmp_path / name}: cannot be written: {TOO_LARGE}"
    assert os.listdir(tmp_path) == ["source"]


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "copy.bin"])
def test_a_full_disk_is_named(tmp_path, name):
    with small_disk(tmp_path / "small"):
        with pytest.raises((OSError, ValueError)) as failed:
            WRITERS[name](tmp_path / "small" / name)
        assert message(failed.value) == f"{tmp_path / 'small' / name}: cannot be written: {FULL}"
        assert os.listdir(tmp_path / "small") == []


def test_files_that_grow_are_named(tmp_path):
    with pytest.raises(OSError, match=TOO_LARGE) as failed, _appending(tmp_path, 0) as append, limited(15_000):
        append(NOISE, {"filename": "a.wav"})
    assert message(failed.value) == f"{tmp_path / 'features.bin'}: cannot be written: {TOO_LARGE}"
    events = list(listen(EnergyScorer(), [bursts(4, (1, 2))], Decoder(), name="live"))
    with pytest.raises(OSError, match=TOO_LARGE) as failed, growing_table(tmp_path / "events.csv") as add, limited(60):
        add(events[0])
    assert message(failed.value) == f"{tmp_path / 'events.csv'}: cannot be written: {TOO_LARGE}"


@pytest.mark.parametrize("room", [0, 10])
def test_a_manifest_on_a_full_disk_has_no_half_lines(tmp_path, room):
    with owned(tmp_path), written_whole(tmp_path / "a.txt") as draft:
        draft.write_text("a")
    before = (tmp_path / MANIFEST).read_bytes()
    with (
        pytest.raises(OSError, match=TOO_LARGE),
        owned(tmp_path),
        limited(len(before) + room),
        written_whole(tmp_path / "b.txt") as draft,
    ):
        draft.write_text("b")
    assert (tmp_path / MANIFEST).read_bytes() == before
    assert not (tmp_path / "b.txt").exists()


def test_a_lock_leaves_no_empty_file(tmp_path):
    with limited(0), locked(tmp_path):
        pass
    assert os.listdir(tmp_path) in ([], [".lock"])


def test_errors_of_other_files_keep_their_names(tmp_path):
    with pytest.raises(FileNotFoundError) as failed, written_whole(tmp_path / "a.txt"):
        (tmp_path / "missing").read_text()
    assert failed.value.filename == str(tmp_path / "missing")
    with pytest.raises(KeyError), written_whole(tmp_path / "a.txt"):
        raise KeyError("a mistake stays what it is")
    assert os.listdir(tmp_path) == []
