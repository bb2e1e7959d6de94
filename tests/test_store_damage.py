"""Feature stores whose files were damaged: no damaged features are used, and what happens is said in one line."""

import json
import os
import sys

import numpy as np
import pytest
import torch
import warm

from earmark import audio
from earmark.annotations import LabelTable
from earmark.bags import Bags, FeatureStore, build_store
from earmark.datasets import Clip, Source
from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig, LogMel

CONFIG = FeatureConfig(rate=8000, n_fft=256, hop_samples=128, n_bands=16)


@pytest.fixture
def clips(tmp_path, rng):
    """Seven clips of 1.0 to 2.2 seconds."""
    paths = [tmp_path / f"clip {i}.wav" for i in range(7)]
    for i, path in enumerate(paths):
        audio.write(path, 0.1 * rng.standard_normal(8000 + 1600 * i).astype(np.float32), 8000)
    return [Clip(path.name, (Source(path),)) for path in paths]


@pytest.fixture
def labels(clips):
    return LabelTable([(clip.filename, 0.2, 0.6, "dog") for clip in clips])


@pytest.fixture
def store(tmp_path, clips):
    return build_store(tmp_path / "store", clips, CONFIG, dtype="float32")


def zeroed(folder):
    path = folder / "features.bin"
    path.write_bytes(bytes(path.stat().st_size))


def flipped(folder):
    with open(folder / "features.bin", "r+b") as file:
        file.seek(1000)
        byte = file.read(1)[0]
        file.seek(1000)
        file.write(bytes([byte ^ 16]))


def assert_whole(store, clips):
    assert len(store) == len(clips)
    for clip in clips:
        np.testing.assert_array_equal(
            store[clip.filename][0], LogMel(CONFIG)(torch.from_numpy(clip.read(8000))[None])[0].T.numpy()
        )


@pytest.mark.parametrize(("damage", "count"), [(zeroed, 7), (flipped, 1)])
def test_damaged_frames_are_never_used_and_the_next_build_computes_them_again(store, clips, labels, damage, count):
    damage(store.path)
    message = rf"{store.path}: features of clip \d.wav do not match their checksum: .*; train again to recompute them"
    with pytest.raises(DataError, match=message):
        [store[name] for name in store.filenames]
    for resident in (False, True):
        with pytest.raises(DataError, match=message):
            list(Bags(FeatureStore(store.path), labels, resident=resident).draw(7, 4, patch=0.5, seed=0))
    again = build_store(store.path, clips, CONFIG, dtype="float32")
    assert len(again.repaired) == count
    assert_whole(again, clips)
    assert build_store(store.path, clips, CONFIG, dtype="float32").repaired == ()


def test_damaged_frames_without_their_recording_are_skipped(store, clips):
    zeroed(store.path)
    clips[0].sources[0].path.unlink()
    again = build_store(store.path, clips, CONFIG, dtype="float32")
    assert len(again.repaired) == 6
    assert "clip 0.wav" in again.skipped["clip 0.wav"]
    with pytest.raises(DataError, match=r"clip 0.wav: no features in .*: .*clip 0.wav: No such file"):
        again["clip 0.wav"]


DRAWING = """
import os, sys
from earmark.annotations import LabelTable
from earmark.bags import Bags, FeatureStore
from earmark.errors import ArgumentError, DataError

store = FeatureStore(sys.argv[1])
bags = Bags(store, LabelTable([(name, 0.1, 0.5, "dog") for name in store.filenames]))
batches = bags.draw(100, 7, patch=1.0, seed=0)
next(batches)
os.truncate(store.path / "features.bin", 64)
try:
    list(batches)
except DataError as error:
    print(error)
"""


def test_a_store_truncated_while_batches_are_drawn_is_one_line(store):
    """In another process: memory-mapped files end it with a bus error."""
    result = warm.run([sys.executable, "-c", DRAWING, str(store.path)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert "end too early: the file was damaged or changed; train again" in result.stdout
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "change",
    [
        "nonsense",
        "[" * 100_000,
        '{"start": ' + "9" * 5000 + "}",
        {"start": -1},
        {"start": 10**30},
        {"frames": 0},
        {"frames": 10**18},
        {"frames": 1.5},
        {"samples": "8000"},
        {"crc32": None},
        {"sources": [["a.wav", 1]]},
        {"filename": 3},
        {"extra": 1},
    ],
    ids=lambda change: str(change)[:20],
)
def test_crafted_lines_do_not_count(store, clips, change):
    index = store.path / "index.jsonl"
    first, *rest = index.read_text().splitlines()
    line = change if isinstance(change, str) else json.dumps(json.loads(first) | change)
    index.write_text("\n".join([line, *rest]) + "\n")
    opened = FeatureStore(store.path)
    assert len(opened) == 6
    lost = json.loads(first)["filename"]
    with pytest.raises(DataError, match=rf"{lost}: no features in .*: the store was built without this clip"):
        opened[lost]
    assert_whole(build_store(store.path, clips, CONFIG, dtype="float32"), clips)


def test_a_line_that_points_to_other_frames_is_damage(store, clips):
    index = store.path / "index.jsonl"
    lines = [json.loads(line) for line in index.read_text().splitlines()]
    lines[3]["start"] = lines[3]["start"] - 1
    index.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(DataError, match="do not match their checksum"):
        FeatureStore(store.path)[lines[3]["filename"]]
    assert_whole(build_store(store.path, clips, CONFIG, dtype="float32"), clips)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "not valid JSON: recursion limit exceeded"),
        ('{"version": ' + "3" * 5000 + "}", "not valid JSON: number out of range"),
        ('{"version": 3}', "features: expected a table, got nothing"),
        ({"dtype": "int8"}, "dtype: expected float16 or float32, got 'int8'"),
        ({"semitones": []}, "semitones: expected a list"),
        ({"features": {"n_bands": "many"}}, "features.n_bands: expected a whole number"),
        ({"version": 2}, "expected version 3, got 2"),
    ],
    ids=str,
)
def test_damaged_settings_are_one_line(store, clips, text, message):
    path = store.path / "store.json"
    path.write_text(text if isinstance(text, str) else json.dumps(json.loads(path.read_text()) | text))
    for use in (FeatureStore, lambda folder: build_store(folder, clips, CONFIG, dtype="float32")):
        with pytest.raises(DataError, match=rf"store.json: {message}.*; delete {store.path} to recompute") as caught:
            use(store.path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a\tb\n", '"a"\n', '"a"\t"b"\t"c"\n', "[" * 100_000 + "\n"], ids=lambda text: text[:9]
)
def test_a_damaged_list_of_skipped_clips_is_one_line(store, text):
    (store.path / "skipped.tsv").write_text(text)
    with pytest.raises(DataError, match=r"skipped.tsv:1: (not valid JSON|expected 2 columns)"):
        FeatureStore(store.path)


def test_frames_are_on_the_disk_before_their_lines_and_both_before_a_clip_counts(tmp_path, clips, monkeypatch):
    sizes, fsync = [], os.fsync
    monkeypatch.setattr("earmark.bags.store._FLUSH_EVERY", 3)

    def note(handle):
        fsync(handle)
        name = os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))
        if name in ("features.bin", "index.jsonl"):
            sizes.append((name, os.fstat(handle).st_size))

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", note)
    build_store(tmp_path / "store", clips, CONFIG)
    assert [name for name, _ in sizes] == ["features.bin", "index.jsonl"] * 3
    assert [size for name, size in sizes if name == "index.jsonl"][-1] == (
        tmp_path / "store/index.jsonl"
    ).stat().st_size


@pytest.mark.parametrize("name", ["features.bin", "index.jsonl"])
def test_a_store_whose_files_are_links_changes_nothing_elsewhere(tmp_path, clips, name):
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / name).symlink_to(theirs)
    with pytest.raises(ArgumentError, match="refusing to write through a symbolic link"):
        build_store(tmp_path / "store", clips, CONFIG)
    assert theirs.read_text() == "theirs"
