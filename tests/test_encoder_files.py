"""Embeddings that were computed elsewhere, one file for each recording."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

import earmark as product
from earmark import audio
from earmark.checkpoint import read_model_info, read_tensors
from earmark.datasets import open_data
from earmark.encoders import FileEncoder, load, stored
from earmark.encoders.stored import read_embeddings
from earmark.errors import ArgumentError, DataError, MissingExtraError

SHORT = {"epochs": 2, "steps": 4, "batch_size": 4, "mixtures": 0}


def parquet():
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'earmark[parquet]'")
    import pyarrow.parquet

    return pyarrow


def save(path, embeddings, times, **about):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npz":
        np.savez_compressed(path, embeddings=embeddings, times=times, **about)
        return
    pyarrow = parquet()
    table = pyarrow.table({"time": times, "embedding": list(embeddings)})
    pyarrow.parquet.write_table(table.replace_schema_metadata(about), path)


@pytest.fixture(scope="module")
def data(recordings, tmp_path_factory):
    """Recordings, the embeddings of `tiny` for each in a folder, and a longer recording with them beside it."""
    root, encoder = tmp_path_factory.mktemp("files"), load("tiny")
    shutil.copytree(recordings, root / "sounds")
    noise = 0.2 * np.random.default_rng(0).standard_normal(8000 * 70)
    (root / "new").mkdir()
    audio.write(root / "new" / "long.wav", (noise * np.linspace(0, 1, len(noise))).astype(np.float32), 8000)
    places = {path: root / "embeddings" / path.name for path in sorted((root / "sounds").glob("*.wav"))}
    places[root / "new" / "long.wav"] = root / "new" / "long.wav"
    for i, (path, place) in enumerate(places.items()):
        x = encoder(audio.read(path), audio.info(path).rate)
        times = (np.arange(len(x)) + 0.5 * (i % 2)) * 0.16  # starts, or centres
        save(place.with_suffix(".npz" if i % 3 else ".parquet"), x, times, encoder="tiny", licence="MIT")
    return root


@pytest.fixture(scope="module")
def runs(data):
    """A run on the files, and a run on the encoder that computed them."""
    compute = product.api.Compute(cache=data / "cache")
    files = product.train(
        data / "sounds", data / "a", encoder=f"files:{data}/embeddings", settings=SHORT, compute=compute
    )
    compute = product.api.Compute(cache=data / "cache2")
    return files, product.train(data / "sounds", data / "b", encoder="tiny", settings=SHORT, compute=compute)


def test_the_card_is_that_of_the_files(data):
    card = load(f"files:{data}/embeddings").card
    assert (card.hop, card.dimension, card.licence) == (0.16, 64, "MIT")
    assert card.summary == "embeddings computed elsewhere, by tiny"


def test_training_is_that_of_the_encoder_itself(runs):
    one, two = (read_tensors(run.path / "model.safetensors", "model")[0] for run in runs)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_detection_is_that_of_the_encoder_itself(runs, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = (product.load(run.path) for run in runs)
    recordings = [*sorted((data / "sounds").glob("*.wav"))[:3], data / "new" / "long.wav"]
    for a, b in zip(one.score_files(recordings), two.score_files(recordings), strict=True):
        assert (a.frames, a.hop, len(a.p)) == (b.frames, b.hop, len(b.p))
        np.testing.assert_allclose(a.p, b.p, atol=1e-6)
    assert [row[:4] for row in one.detect(recordings)] == [row[:4] for row in two.detect(recordings)]


def test_evaluation(runs, data, tmp_path):
    one, two = (product.evaluate(run, data / "sounds", out=tmp_path / str(i)) for i, run in enumerate(runs))
    assert one.to_dict()["segment"] == two.to_dict()["segment"]


def test_a_model_needs_no_folder_if_files_are_beside_the_recordings(runs, data, monkeypatch, tmp_path):
    monkeypatch.setattr("earmark.encoders.features._provided", {})
    shutil.move(data / "embeddings", tmp_path / "embeddings")
    try:
        detector = product.load(runs[0].path)
        assert len(detector.score_files([data / "new" / "long.wav"])[0].p) == 437
        with pytest.raises(
            DataError, match=r"00\.wav: no embeddings: expected 00\.npz or 00\.parquet next to it or in "
        ):
            detector.detect(data / "sounds" / "00.wav")
        with pytest.raises(DataError, match="reads embeddings from files; expected a recording in a file"):
            detector.detect(np.zeros(8000, np.float32), rate=8000)
    finally:
        shutil.move(tmp_path / "embeddings", data / "embeddings")


def test_changed_embeddings_are_read_again_and_bad_ones_leave_a_clip_out(data, tmp_path):
    sounds, folder = tmp_path / "sounds", tmp_path / "e"
    shutil.copytree(data / "sounds", sounds)
    shutil.copytree(data / "embeddings", folder)
    options = {"encoder": f"files:{folder}", "settings": SHORT, "compute": product.api.Compute(cache=tmp_path / "c")}
    first = product.train(sounds, tmp_path / "1", **options)
    save(folder / "01.npz", np.ones((12, 64)), np.arange(12) * 0.16, encoder="tiny")
    save(folder / "02.npz", np.ones((12, 64)), np.arange(12) * 0.16, encoder="another")
    again = product.train(sounds, tmp_path / "2", **options)
    infos = [read_model_info(run.path / "model.safetensors") for run in (first, again)]
    assert infos[0]["tensors"] != infos[1]["tensors"]
    (note,) = [note for note in again.notes if "could not be read" in note]
    assert "02.npz: expected embeddings of the encoder that training used, got those of 'another'" in note


def test_mixtures_are_refused(data, tmp_path):
    options = {"encoder": f"files:{data}/embeddings", "compute": product.api.Compute(cache=tmp_path / "c")}
    with pytest.raises(ArgumentError, match="embeddings computed elsewhere exist for unchanged files only"):
        product.train(data / "sounds", tmp_path / "r", settings={**SHORT, "mixtures": 3}, **options)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"x": np.where(np.arange(60).reshape(20, 3) == 31, np.nan, 0.0)},
            r"expected finite numbers, got NaN in frame 10 \(1 s\)",
        ),
        (
            {"x": np.where(np.arange(60).reshape(20, 3) == 31, 1e39, 0.0)},
            "expected finite numbers, got infinity, or a number beyond float32, in",
        ),
        ({"times": np.delete(np.arange(21), 7) * 0.1}, "expected a constant hop, got 0.2 s after frame 6, and 0.10"),
        ({"times": np.arange(20) * -0.1}, "expected times from 0 on, got -0.1"),
        ({"times": np.zeros(20)}, "expected a constant hop, got 0 s"),
        ({"times": np.full(20, np.nan)}, "expected times from 0 on, got nan"),
        ({"x": np.zeros((20, 0))}, "expected embeddings, got"),
    ],
)
def test_a_file_that_is_wrong_is_one_line(tmp_path, suffix, change, message):
    values = {"x": np.zeros((20, 3)), "times": np.arange(20) * 0.1} | change
    save(tmp_path / f"a{suffix}", values["x"], values["times"])
    with pytest.raises(DataError, match=rf"a\{suffix}: {message}") as caught:
        read_embeddings(tmp_path / f"a{suffix}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("x", "times", "seconds", "message"),
    [
        (np.zeros((20, 4)), np.arange(20) * 0.1, 2.0, "expected 3 numbers per frame, got 4"),
        (np.zeros((20, 3)), np.arange(20) * 0.2, 4.0, r"expected a hop of 0\.1 s, got 0\.2 s"),
        (np.zeros((20, 3)), np.arange(20) * 0.1, 3.0, r"expected about 30 frames of 0\.1 s, as r\.wav has 3 s, got 20"),
        (np.zeros((20, 3)), np.arange(20) * 0.1, 1.0, "expected about 10 frames"),
    ],
)
def test_a_file_that_does_not_fit(tmp_path, x, times, seconds, message):
    save(tmp_path / "e" / "a.npz", np.zeros((20, 3)), np.arange(20) * 0.1)
    encoder = FileEncoder(tmp_path / "e")
    save(tmp_path / "r.npz", x, times)
    with pytest.raises(DataError, match=rf"r\.npz: {message}"):
        encoder.embeddings_of(tmp_path / "r.wav", round(seconds * encoder.card.rate))


def test_frames_at_both_ends_repeat_those_that_are_there(tmp_path):
    """Windows of 0.5 s every 0.1 s, named by their centres: the first two and the last two frames have none."""
    x = np.arange(16.0)[:, None].repeat(3, 1)
    save(tmp_path / "r.npz", x, np.arange(16) * 0.1 + 0.25)
    encoder = FileEncoder(tmp_path)
    found = encoder.embeddings_of(tmp_path / "r.wav", 2 * encoder.card.rate)
    assert found[:, 0].tolist() == [0, 0, *range(16), 15, 15]


def test_files_below_the_names_of_folders_come_before_others(tmp_path):
    for place in ("e/b/r.npz", "e/r.npz"):
        save(tmp_path / place, np.zeros((20, 3)), np.arange(20) * 0.1)
    encoder = FileEncoder(tmp_path / "e")
    assert encoder.find(tmp_path / "a" / "b" / "r.wav") == tmp_path / "e" / "b" / "r.npz"
    assert encoder.find(tmp_path / "a" / "r.wav") == tmp_path / "e" / "r.npz"


def test_a_folder_without_embeddings(tmp_path):
    with pytest.raises(
        ArgumentError, match=r"expected embeddings \(\.npz or \.parquet\) of two frames or more, got none"
    ):
        load(f"files:{tmp_path}")
    with pytest.raises(ArgumentError, match="expected files:FOLDER, a folder of embeddings, got '/nowhere'"):
        load("files:/nowhere")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises((DataError, MissingExtraError), match=r"a\.parquet: not a Parquet file of embeddings|parquet"):
        load(f"files:{tmp_path}")


def test_lists_of_several_lengths(tmp_path):
    pyarrow = parquet()
    pyarrow.parquet.write_table(
        pyarrow.table({"time": [0.0, 0.1], "embedding": [[1.0], [1.0, 2.0]]}), tmp_path / "a.parquet"
    )
    with pytest.raises(DataError, match=r"a\.parquet: embedding: expected lists of one length, got \[1, 2\]"):
        read_embeddings(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"time": [0.0, 0.1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b\.parquet: column 'embedding' is missing"):
        read_embeddings(tmp_path / "b.parquet")


def test_a_small_parquet_file_cannot_stand_for_any_amount_of_memory(tmp_path, monkeypatch):
    """Equal numbers take a few bytes in the file: its size says nothing about the size in memory."""
    pyarrow = parquet()
    monkeypatch.setattr(stored, "_LARGEST", 1 << 20)
    frames, path = 2000, tmp_path / "a.parquet"
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.zeros(100 * frames, np.float32)), 100)
    pyarrow.parquet.write_table(pyarrow.table({"time": np.zeros(frames), "embedding": lists}), path)
    assert path.stat().st_size < 1 << 15
    with pytest.raises(DataError, match=r"a\.parquet: expected at most 1 MiB of numbers, got 1 MiB"):
        read_embeddings(path)


def as_required(content):
    """A Parquet file whose schema calls the column of times required, while its statistics count missing ones."""
    optional = b"\x25\x02\x18\x04time"  # field 3 of the schema element is 1 (optional), field 4 the name
    assert content.count(optional) == 1
    return content.replace(optional, b"\x25\x00\x18\x04time")


def test_a_parquet_file_that_ends_the_process_is_one_line_and_costs_only_itself(tmp_path, capfd):
    """pyarrow 26 throws an exception in C++ that it does not catch; other versions refuse the file, or misread it."""
    for name in ("a", "b", "c"):
        save(tmp_path / f"{name}.parquet", np.ones((20, 3)), np.arange(20) * 0.1)
    path = tmp_path / "b.parquet"
    path.write_bytes(as_required(path.read_bytes()))
    assert read_embeddings(tmp_path / "a.parquet").hop == pytest.approx(0.1)
    with pytest.raises(DataError, match=r"b\.parquet: ") as caught:
        read_embeddings(path)
    assert "\n" not in str(caught.value)
    assert read_embeddings(tmp_path / "c.parquet").hop == pytest.approx(0.1)
    assert capfd.readouterr() == ("", "")


def test_a_script_without_a_guard_reads_parquet_files(tmp_path):
    """The process that reads them does not import the script, which would run again."""
    save(tmp_path / "a.parquet", np.ones((20, 3)), np.arange(20) * 0.1)
    (tmp_path / "script.py").write_text(
        "from pathlib import Path; from earmark.encoders.stored import read_embeddings; "
        "print(read_embeddings(Path('a.parquet')).embeddings.shape)"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("(20, 3)\n", "")


@pytest.mark.parametrize(
    "columns", [{"time": ["a"]}, {"embedding": [["a"]]}, {"embedding": [1.0]}, {"embedding": ["a"]}]
)
def test_parquet_columns_that_are_not_numbers_are_one_line(tmp_path, columns):
    pyarrow = parquet()
    table = pyarrow.table({"time": [0.0], "embedding": [[1.0]]} | columns)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: expected numbers as time and lists of numbers as embedding, got"):
        read_embeddings(tmp_path / "a.parquet")


def test_clips_of_data_sets_are_found(data):
    """The fixture's clips have embeddings in a folder that is not theirs."""
    encoder = load(f"files:{data}/embeddings")
    for clip in open_data(str(data / "sounds")).clips:
        assert encoder.find(clip.sources[0].path).parent == data / "embeddings"
