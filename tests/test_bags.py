"""Bags: stores that survive, batches that depend on nothing but their number, targets that are never guessed."""

import dataclasses
import json
import os
import sys
import threading
import time

import numpy as np
import pytest
import torch
import warm
from reference.bags import patch_targets

from earmark import audio
from earmark.annotations import LabelTable
from earmark.bags import Bags, FeatureStore, build_store
from earmark.datasets import Clip, Source
from earmark.effects import change_pitch_and_time, compress
from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig, LogMel

CONFIG = FeatureConfig(rate=8000, n_fft=256, hop_samples=128, n_bands=16)


@pytest.fixture
def clips(tmp_path, rng):
    """Seven clips of 1.0 to 2.2 seconds."""
    folder = tmp_path / "sound"
    folder.mkdir()
    clips = []
    for i in range(7):
        path = folder / f"clip {i}.wav"
        audio.write(path, 0.1 * rng.standard_normal(8000 + 1600 * i).astype(np.float32), 8000)
        clips.append(Clip(path.name, (Source(path),)))
    return clips


@pytest.fixture
def labels(clips):
    rows = [(clip.filename, 0.2, 0.6, "dog") for clip in clips[::2]]
    rows += [(clips[1].filename, None, None, "cat"), (clips[6].filename, None, None, "cat", None)]
    return LabelTable(rows, filenames=[clip.filename for clip in clips])


@pytest.fixture
def store(tmp_path, clips):
    return build_store(tmp_path / "store", clips, CONFIG, dtype="float32")


def expected(clip, config=CONFIG):
    return LogMel(config)(torch.from_numpy(clip.read(config.rate))[None])[0].T.numpy()


def test_a_store_holds_what_the_features_are(store, clips):
    assert set(store.filenames) == {clip.filename for clip in clips}
    for clip in clips:
        np.testing.assert_array_equal(store[clip.filename][0], expected(clip))


def test_half_precision_is_within_its_rounding(tmp_path, clips):
    store = build_store(tmp_path / "half", clips, CONFIG)
    for clip in clips:
        np.testing.assert_allclose(store[clip.filename][0], expected(clip), atol=0.032)


def test_pitch_variants_are_kept_beside_the_clip(tmp_path, clips):
    store = build_store(tmp_path / "five", clips, CONFIG, semitones=(-2, -1, 1, 2), dtype="float32")
    assert store.semitones == (0, -2, -1, 1, 2)
    x = LogMel(CONFIG)(torch.from_numpy(clips[2].read(8000))[None], semitones=(0, -2, -1, 1, 2))[0]
    np.testing.assert_allclose(store[clips[2].filename], x.transpose(1, 2).numpy(), atol=1e-4)


def test_pitch_variants_may_be_of_shifted_sound(tmp_path, clips):
    options = {"semitones": (-2, 1), "compression": ("speech",), "dtype": "float32"}
    store = build_store(tmp_path / "sound", clips, CONFIG, pitch_shift="sound", **options)
    assert (store.variants, store.semitones) == (4, (0, -2, 1))
    sound = clips[2].read(8000)
    changed = [
        sound,
        *(change_pitch_and_time(sound, 8000, semitones=s) for s in (-2, 1)),
        compress(sound, 8000, "speech"),
    ]
    for variant, samples in enumerate(changed):
        x = LogMel(CONFIG)(torch.from_numpy(samples)[None])[0]
        np.testing.assert_allclose(store[clips[2].filename][variant], x.T.numpy(), atol=1e-4)
    with pytest.raises(
        ArgumentError,
        match=r"contains features with other settings: pitch_shift sound \(now "
        r"filters\)",
    ):
        build_store(tmp_path / "sound", clips, CONFIG, **options)


def test_compressed_variants_follow_the_pitch_variants(tmp_path, clips, labels):
    store = build_store(
        tmp_path / "four", clips, CONFIG, semitones=(1,), compression=("speech", "radio"), dtype="float32"
    )
    assert (store.variants, store.compression) == (4, ("speech", "radio"))
    sound = clips[2].read(8000)
    for variant, preset in ((2, "speech"), (3, "radio")):
        x = LogMel(CONFIG)(torch.from_numpy(compress(sound, 8000, preset))[None])[0]
        np.testing.assert_allclose(store[clips[2].filename][variant], x.T.numpy(), atol=1e-4)
        assert not np.allclose(store[clips[2].filename][variant], store[clips[2].filename][0], atol=0.1)
    drawn = set()
    for batch in Bags(store, labels).draw(28, 1, patch=10.0, seed=0):
        frames = batch.features[0].T[batch.mask[0]]
        drawn |= {v for v in range(4) if np.array_equal(store[batch.filenames[0]][v], frames)}
    assert drawn == {0, 1, 2, 3}
    with pytest.raises(
        ArgumentError,
        match=r"contains features with other settings: compression \['speech', "
        r"'radio'\]",
    ):
        build_store(tmp_path / "four", clips, CONFIG, semitones=(1,), dtype="float32")


def test_a_clip_of_several_sources_is_their_sum(tmp_path, clips):
    both = Clip("both", (Source(clips[0].sources[0].path, 0.5), Source(clips[3].sources[0].path, 2.0)))
    sound = both.read(8000)
    assert len(sound) == len(clips[3].read(8000))
    np.testing.assert_allclose(sound[:8000], 0.5 * clips[0].read(8000) + 2 * clips[3].read(8000)[:8000], atol=1e-6)


def test_building_again_computes_nothing(tmp_path, store, clips, monkeypatch):
    monkeypatch.setattr("earmark.audio.read", lambda *a, **k: pytest.fail("read again"))
    assert build_store(tmp_path / "store", clips, CONFIG, dtype="float32").filenames == store.filenames


def test_a_store_from_before_there_were_choices_is_used(tmp_path, clips, monkeypatch):
    """Without `pad_mode`, frames were padded with zeros; without `pitch_shift`, filters were moved."""
    build_store(tmp_path / "old", clips, CONFIG, semitones=(1,))
    path = tmp_path / "old" / "store.json"
    settings = json.loads(path.read_text())
    del settings["pitch_shift"], settings["features"]["pad_mode"]
    path.write_text(json.dumps(settings))
    monkeypatch.setattr("earmark.audio.read", lambda *a, **k: pytest.fail("read again"))
    store = build_store(tmp_path / "old", clips, CONFIG, semitones=(1,))
    assert (store.config.pad_mode, len(store)) == ("zeros", len(clips))
    reflected = dataclasses.replace(CONFIG, pad_mode="reflect")
    with pytest.raises(ArgumentError, match=r"with other settings: features\.pad_mode zeros \(now reflect\)"):
        build_store(tmp_path / "old", clips, reflected, semitones=(1,))


def test_a_changed_file_is_done_again(tmp_path, store, clips):
    audio.write(clips[3].sources[0].path, np.full(9000, 0.25, np.float32), 8000)
    again = build_store(tmp_path / "store", clips, CONFIG, dtype="float32")
    np.testing.assert_array_equal(again[clips[3].filename][0], expected(clips[3]))
    np.testing.assert_array_equal(again[clips[4].filename], store[clips[4].filename])


def test_features_outlive_their_files(tmp_path, store, clips):
    clips[0].sources[0].path.unlink()
    assert clips[0].filename in build_store(tmp_path / "store", clips, CONFIG, dtype="float32")


def test_other_settings_are_refused(tmp_path, store, clips):
    other = FeatureConfig(rate=8000, n_fft=512, hop_samples=128, n_bands=16)
    with pytest.raises(ArgumentError, match=r"other settings: features.n_fft 256 \(now 512\); choose another folder"):
        build_store(tmp_path / "store", clips, other, dtype="float32")
    with pytest.raises(ArgumentError, match=r"dtype float32 \(now float16\)"):
        build_store(tmp_path / "store", clips, CONFIG)
    with pytest.raises(ArgumentError, match="dtype='int8' is not known"):
        build_store(tmp_path / "store", clips, CONFIG, dtype="int8")


def test_a_bad_file_is_listed_and_the_rest_goes_on(tmp_path, clips):
    clips[2].sources[0].path.write_bytes(b"")
    store = build_store(tmp_path / "store", clips, CONFIG)
    assert len(store) == 6
    assert "clip 2.wav" in store.skipped["clip 2.wav"]
    with pytest.raises(DataError, match=r"clip 2.wav: no features in .*empty"):
        store["clip 2.wav"]
    audio.write(clips[2].sources[0].path, np.full(9000, 0.25, np.float32), 8000)
    cleaned = build_store(tmp_path / "store", clips, CONFIG)
    assert len(cleaned) == 7
    assert cleaned.skipped == {}


def test_what_is_not_a_store_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not a feature store"):
        FeatureStore(tmp_path)
    (tmp_path / "store.json").write_text("{")
    with pytest.raises(
        DataError, match=r"store.json: not valid JSON: .* delete .* to recompute its features, or choose another"
    ):
        FeatureStore(tmp_path)
    (tmp_path / "store.json").write_text('{"version": 1}')
    for use in (FeatureStore, lambda folder: build_store(folder, [], CONFIG)):
        with pytest.raises(DataError, match=r"expected version 3, got 1; delete .* or choose another folder"):
            use(tmp_path)


def test_unfinished_tails_are_cut_off(tmp_path, store, clips):
    folder = tmp_path / "store"
    lines = (folder / "index.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "index.jsonl").write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    with open(folder / "features.bin", "ab") as data:
        data.write(b"half a fra")
    assert len(FeatureStore(folder)) == 6
    again = build_store(folder, clips, CONFIG, dtype="float32")
    for clip in clips:
        np.testing.assert_array_equal(again[clip.filename][0], expected(clip))


def test_lines_whose_frames_are_missing_do_not_count(tmp_path, store, clips):
    folder = tmp_path / "store"
    os.truncate(folder / "features.bin", os.path.getsize(folder / "features.bin") - 64)
    assert len(FeatureStore(folder)) == 6
    again = build_store(folder, clips, CONFIG, dtype="float32")
    for clip in clips:
        np.testing.assert_array_equal(again[clip.filename][0], expected(clip))


KILLED = """
import itertools, sys, time
from pathlib import Path
from earmark.bags import build_store, store
from earmark.datasets import Clip, Source
from earmark.features import FeatureConfig
store._FLUSH_EVERY = 3
reads, read = itertools.count(), Clip.read

def read_some(clip, rate, *how):
    if next(reads) >= 40:
        time.sleep(600)  # until it is killed, so that it is never done before
    return read(clip, rate, *how)

Clip.read = read_some
folder = Path(sys.argv[1])
clips = [Clip(p.name + str(i), (Source(p),)) for i in range(40) for p in sorted(folder.glob("*.wav"))]
build_store(sys.argv[2], clips, FeatureConfig(rate=8000, n_fft=256, hop_samples=128, n_bands=16), workers=2)
"""


def test_a_killed_build_goes_on(tmp_path, clips):
    """Really killed, three times, at whatever moment it was in."""
    many = [Clip(c.filename + str(i), c.sources) for i in range(40) for c in clips]
    folder, done = tmp_path / "killed", []
    for _ in range(3):
        before, end = index_size(folder), time.monotonic() + 300
        with warm.Popen([sys.executable, "-c", KILLED, str(tmp_path / "sound"), str(folder)]) as process:
            while process.poll() is None and index_size(folder) <= before and time.monotonic() < end:
                time.sleep(0.005)
            process.kill()
        done.append(len(FeatureStore(folder)))
    assert 0 < done[0] < done[1] < done[2] < len(many), done
    store = build_store(folder, many, CONFIG)
    assert len(store) == len(many)
    for clip in many[::5]:
        np.testing.assert_array_equal(store[clip.filename][0], expected(clip).astype(np.float16))


def index_size(folder):
    path = folder / "index.jsonl"
    return path.stat().st_size if path.exists() else 0


def test_every_clip_comes_once_before_any_comes_again(store, labels):
    bags = Bags(store, labels)
    names = [n for batch in bags.draw(7, 4, patch=0.5, seed=3) for n in batch.filenames]
    for begin in range(0, 28, 7):
        assert sorted(names[begin : begin + 7]) == sorted(store.filenames)
    assert names[:7] != names[7:14]


def test_batches_depend_on_seed_epoch_and_step_alone(store, labels):
    def draw(**options):
        return list(Bags(store, labels).draw(6, 4, patch=0.5, **{"seed": 1, "epoch": 2, **options}))

    whole, rest = draw(), draw(first=4)
    for a, b in zip(whole[4:], rest, strict=True):
        assert a.filenames == b.filenames
        assert torch.equal(a.features, b.features)
    assert not torch.equal(draw(seed=2)[0].features, whole[0].features)
    assert not torch.equal(draw(epoch=3)[0].features, whole[0].features)


def test_processes_share_out_what_one_would_draw(store, labels):
    bags = Bags(store, labels)
    options = {"patch": 0.5, "seed": 5, "balanced": False}
    one = list(bags.draw(5, 4, **options))
    two = [list(bags.draw(5, 4, part=(k, 2), **options)) for k in range(2)]
    for batch, first, second in zip(one, *two, strict=True):
        assert torch.equal(batch.features, torch.cat([first.features, second.features]))
        assert batch.filenames == first.filenames + second.filenames
    with pytest.raises(ArgumentError, match="batch_size 4 cannot be shared equally by 3 processes"):
        bags.draw(5, 4, part=(0, 3), **options)


@pytest.mark.parametrize("resident", [False, True])
def test_short_clips_are_padded_and_masked(store, labels, clips, resident):
    bags = Bags(store, labels, resident=resident)
    length = CONFIG.frames(3 * 8000)
    for batch in bags.draw(4, 3, patch=3.0, seed=0):
        assert batch.features.shape == (3, 16, length)
        for x, mask, name in zip(batch.features, batch.mask, batch.filenames, strict=True):
            own = torch.from_numpy(np.array(store[name][0])).T
            assert int(mask.sum()) == own.shape[1]
            assert torch.equal(x[:, : own.shape[1]], own)
            assert (x[:, own.shape[1] :] == -80).all()


@pytest.mark.parametrize("resident", [False, True])
def test_patches_are_cut_from_the_clip(store, labels, resident):
    bags = Bags(store, labels, resident=resident)
    offsets = set()
    for batch in bags.draw(20, 3, patch=0.25, seed=0):
        assert batch.mask is None
        for x, activity, target, name in zip(
            batch.features, batch.frame_targets, batch.targets, batch.filenames, strict=True
        ):
            own = np.array(store[name][0]).T
            (at,) = (k for k in range(own.shape[1]) if np.array_equal(own[:, k : k + x.shape[1]], x))
            offsets.add(at)
            frames = labels.frame_targets(name, own.shape[1], CONFIG.hop)[at : at + x.shape[1]]
            np.testing.assert_array_equal(activity, frames)
            np.testing.assert_array_equal(target, patch_targets(frames, min_share=0.1))
    assert len(offsets) > 20


def test_whole_clips_have_the_targets_of_their_labels(store, labels):
    bags = Bags(store, labels)
    seen = {}
    for batch in bags.pieces(3, patch=1e6):
        for x, target, name, n in zip(
            batch.features,
            batch.targets,
            batch.filenames,
            batch.mask.sum(1) if batch.mask is not None else [batch.features.shape[2]] * 3,
            strict=False,
        ):
            seen[name] = target
            np.testing.assert_array_equal(x[:, : int(n)].T, store[name][0])
    assert sorted(seen) == sorted(store.filenames)
    np.testing.assert_array_equal(torch.stack([seen[n] for n in bags.filenames]), labels.bag_targets(bags.filenames))


def test_long_clips_are_validated_in_the_patches_they_are_learned_in(store, labels):
    """End to end, the last one ending with the clip; a clip stays whole that is short, or has a class without times."""
    patch, length = 0.8, CONFIG.frames(6400)
    bags = Bags(store, labels)
    heard = {name: np.zeros(store[name].shape[1], int) for name in bags.filenames}
    whole = {name for name in bags.filenames if labels.bag_targets([name])[0, labels.classes.index("cat")] == 1}
    assert len(whole) == 1
    for batch in bags.pieces(3, patch=patch, min_share=0.1):
        for b, name in enumerate(batch.filenames):
            n = int(batch.mask[b].sum()) if batch.mask is not None else batch.features.shape[2]
            own, x = np.array(store[name][0]).T, batch.features[b, :, :n]
            (at,) = (k for k in range(own.shape[1] - n + 1) if np.array_equal(own[:, k : k + n], x))
            heard[name][at : at + n] += 1
            frames = labels.frame_targets(name, own.shape[1], CONFIG.hop)[at : at + n]
            assert (n == own.shape[1]) == (name in whole)
            true = labels.bag_targets([name])[0] if name in whole else patch_targets(frames, min_share=0.1)
            np.testing.assert_array_equal(batch.targets[b], true)
    for name, times in heard.items():
        assert times.min() == 1
        assert times.sum() == (len(times) if name in whole else -(-len(times) // length) * length)
    shared = [name for k in range(2) for b in bags.pieces(3, patch=patch, part=(k, 2)) for name in b.filenames]
    assert sorted(shared) == sorted(name for b in bags.pieces(3, patch=patch) for name in b.filenames)


def test_clips_no_longer_than_a_patch_are_validated_whole(store, labels):
    bags = Bags(store, labels)
    for one, two in zip(bags.pieces(3, patch=1e6), bags.pieces(3, patch=2.2), strict=True):
        assert one.filenames == two.filenames
        torch.testing.assert_close(one.features, two.features, rtol=0, atol=0)
        torch.testing.assert_close(one.targets, two.targets, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("seconds", "is_known"), [(2.0, True), (2.016, True), (2.1, False)])
def test_a_clip_that_is_hardly_longer_than_a_patch_keeps_its_labels(tmp_path, seconds, is_known):
    """Nobody knows when the cat is heard, but a patch leaves out less than a hundredth of the clip."""
    audio.write(tmp_path / "a.wav", np.random.default_rng(0).normal(0, 0.1, int(seconds * 8000)), 8000)
    clip = Clip("a.wav", (Source(tmp_path / "a.wav"),))
    labels = LabelTable([("a.wav", None, None, "cat")], filenames=["a.wav"], classes=("cat", "dog"))
    bags = Bags(build_store(tmp_path / "store", [clip], CONFIG), labels)
    for batch in bags.draw(5, 2, patch=2.0, seed=0):
        np.testing.assert_array_equal(batch.targets, [[1 if is_known else np.nan, 0]] * 2)
    (batch,) = bags.pieces(2, patch=2.0)  # whole, whether or not it would be cut: its patches would say nothing
    assert batch.targets.tolist() == [[1, 0]]


def test_unknown_stays_unknown(store, labels, clips):
    bags = Bags(store, labels.select([clips[1].filename, clips[6].filename]))
    (batch,) = bags.pieces(2, patch=1e6)
    by_name = dict(zip(batch.filenames, batch.targets.tolist(), strict=True))
    assert by_name[clips[1].filename] == [1, 0]
    assert np.isnan(by_name[clips[6].filename][0])
    for batch in bags.draw(5, 2, patch=0.25, seed=0):  # the cat is somewhere, nobody knows where
        assert batch.targets[:, 0].isnan().all()


def test_balanced_draws_give_every_class_its_turn(tmp_path, clips):
    table = LabelTable(
        [(clips[0].filename, None, None, "rare"), *((c.filename, None, None, "common") for c in clips[1:])]
    )
    bags = Bags(build_store(tmp_path / "store", clips, CONFIG), table)
    names = [n for b in bags.draw(100, 10, patch=3.0, seed=0, balanced=True) for n in b.filenames]
    assert 0.4 < sum(n == clips[0].filename for n in names) / len(names) < 0.6
    silent = Bags(
        FeatureStore(tmp_path / "store"), LabelTable([], filenames=[c.filename for c in clips], classes=["x"])
    )
    with pytest.raises(DataError, match="no clip is labelled with any class"):
        next(silent.draw(1, 2, patch=1.0, seed=0, balanced=True))


def test_variants_are_drawn_like_clips(tmp_path, clips, labels):
    store = build_store(tmp_path / "five", clips, CONFIG, semitones=(-2, 2), dtype="float32")
    bags = Bags(store, labels)
    found = set()
    for batch in bags.draw(7, 3, patch=3.0, seed=0):
        for x, mask, name in zip(batch.features, batch.mask, batch.filenames, strict=True):
            (v,) = (v for v in range(3) if np.array_equal(store[name][v], x.T[mask]))
            found.add((name, v))
    assert len(found) == 21
    (first,) = Bags(store, labels.select([clips[0].filename])).pieces(1, patch=1e6)
    np.testing.assert_array_equal(first.features[0].T, store[clips[0].filename][0])


def test_clips_without_features_or_labels_are_left_out(store, labels, clips):
    some = labels.select([clips[0].filename])
    assert Bags(store, some).filenames == (clips[0].filename,)
    with pytest.raises(DataError, match="none of 1 clips has both features"):
        Bags(store, LabelTable([("elsewhere.wav", None, None, "dog")]))


def test_settings_are_readable(tmp_path, store):
    settings = json.loads((tmp_path / "store" / "store.json").read_text())
    assert settings["features"]["n_bands"] == 16
    assert "7 clips" in repr(store)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("resident", [None, False])
def test_a_gpu_gets_the_same_batches(store, labels, resident):
    here = Bags(store, labels)
    there = Bags(store, labels, device="cuda", resident=resident)
    assert there.is_resident is (resident is None)
    for a, b in zip(here.draw(5, 4, patch=1.5, seed=0), there.draw(5, 4, patch=1.5, seed=0), strict=True):
        for x, y in [(a.features, b.features), (a.mask, b.mask), (a.targets, b.targets)]:
            torch.testing.assert_close(x, y.cpu(), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("seconds", [1, 3, 5])
def test_no_more_sound_is_in_memory_at_once_than_there_is_room_for(tmp_path, clips, monkeypatch, seconds):
    lock, inside, most, read = threading.Lock(), [], [], Clip.read

    def slow(clip, rate, *how):
        samples = read(clip, rate, *how)
        with lock:
            inside.append(len(samples) / rate)
            most.append(sum(inside) if len(inside) > 1 else 0)  # one alone may be longer
        time.sleep(0.05)
        with lock:
            inside.remove(len(samples) / rate)
        return samples

    monkeypatch.setattr("earmark.bags.store._SECONDS_IN_MEMORY", seconds)
    monkeypatch.setattr(Clip, "read", slow)
    store = build_store(tmp_path / "store", clips, CONFIG, dtype="float32", workers=6)
    assert max(most) <= seconds
    monkeypatch.undo()
    for clip in clips:
        np.testing.assert_array_equal(store[clip.filename][0], expected(clip))


def test_where_there_is_room_clips_are_read_together(tmp_path, clips, monkeypatch):
    together, read = threading.Barrier(3), Clip.read

    def meet(clip, rate, *how):
        together.wait(300)
        return read(clip, rate, *how)

    monkeypatch.setattr(Clip, "read", meet)
    assert len(build_store(tmp_path / "store", clips[:3], CONFIG, workers=3)) == 3


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be taken away here")
def test_threads_are_as_many_as_the_cores_the_process_was_given(tmp_path, clips, monkeypatch):
    threads, read, before = set(), Clip.read, os.sched_getaffinity(0)

    def note(clip, rate, *how):
        threads.add(threading.get_ident())
        time.sleep(0.02)
        return read(clip, rate, *how)

    monkeypatch.setattr(Clip, "read", note)
    os.sched_setaffinity(0, {min(before)})
    try:
        build_store(tmp_path / "store", clips, CONFIG)
    finally:
        os.sched_setaffinity(0, before)
    assert len(threads) == 1
