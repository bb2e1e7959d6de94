"""Recordings scored in blocks: as the whole, in any order, in bounded pieces; and scores kept and pooled again."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lightning_fabric import Fabric

from earmark import audio
from earmark.annotations import LabelTable
from earmark.bags import Bags, build_store
from earmark.checkpoint import save_detector
from earmark.datasets import Clip, Source
from earmark.detector import Detector
from earmark.errors import ArgumentError, DataError, ModelFileError
from earmark.features import FeatureConfig, LogMel
from earmark.inference.frozen import frozen
from earmark.inference.recordings import (
    feature_frames,
    latency,
    output_frames,
    score_blocks,
    score_recording,
    score_samples,
)
from earmark.inference.scores import RecordingScores, read_scores, repool, write_scores
from earmark.inference.torch_scorer import TorchScorer, load_scorer
from earmark.networks import create_network
from earmark.pooling import create_pool
from earmark.settings import load_recipe
from earmark.training import validate

RATE = 4000
CLASSES = ("dog", "cat")
PADDINGS = st.sampled_from([{}, {"center": False}, {"pad_mode": "reflect"}])


def make_detector(*, name="cnn", reduction=4, width=0.25, seed=0, classes=CLASSES, **features):
    """A detector whose batch normalisation does something, in both directions."""
    config = FeatureConfig(**{"rate": RATE, "n_fft": 256, "hop_samples": 128, "n_bands": 16} | features)
    generator = torch.manual_seed(seed)
    network = create_network(name, config.n_bands, reduction=reduction, width=width)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            shape = module.weight.shape
            module.weight.data = torch.randn(shape, generator=generator)
            module.bias.data = 0.3 * torch.randn(shape, generator=generator)
            module.running_mean = 0.3 * torch.randn(shape, generator=generator)
            module.running_var = 0.5 + torch.rand(shape, generator=generator)
    return Detector(classes, config, network, create_pool("rap", len(classes))).eval()


def make_sound(samples, seed=0):
    """Noise that is louder at times."""
    rng = np.random.default_rng(seed)
    level = 10 ** rng.uniform(-3, 0, samples // 500 + 1).repeat(500)[:samples]
    return (level * rng.standard_normal(samples)).astype(np.float32)


@torch.inference_mode()
def score_whole(detector, sound):
    return detector(LogMel(detector.features)(torch.from_numpy(sound)[None])).dynamic[0].numpy()


def joined(blocks):
    return np.concatenate(list(blocks))


@settings(max_examples=25, deadline=None)
@given(
    reduction=st.sampled_from([1, 2, 4, 8, 16]),
    width=st.sampled_from([0.1, 0.5]),
    padding=PADDINGS,
    n_fft=st.sampled_from([256, 255, 400]),
    hop=st.sampled_from([128, 100, 77, 300]),
    frames=st.integers(1, 12),
    more=st.integers(-3, 3) | st.integers(0, 5000),
    block=st.sampled_from([0.001, 0.11, 0.7, 3.0]),
    data=st.data(),
)
def test_blocks_give_what_the_whole_gives(reduction, width, padding, n_fft, hop, frames, more, block, data):
    options = {"reduction": reduction, "width": width, "n_fft": n_fft, "hop_samples": hop}
    detector = make_detector(**options, **padding, scaling="fixed")
    scorer = TorchScorer(detector, device="cpu")
    sound = make_sound(max(1, frames * reduction * hop + more))
    silence = np.zeros(max(0, scorer.least_samples - len(sound)), np.float32)
    whole = score_whole(detector, np.concatenate([sound, silence]))
    assert len(whole) == output_frames(scorer, len(sound))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sound)), max_size=6)))
    for found in (score_blocks(scorer, np.split(sound, cuts)), score_samples(scorer, sound, block=block)):
        np.testing.assert_allclose(joined(found), whole, rtol=0, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    reduction=st.sampled_from([1, 4, 16]),
    padding=PADDINGS,
    window=st.sampled_from([0.05, 0.3, 0.5, 1.0]),
    samples=st.integers(1, 12_000),
    data=st.data(),
)
def test_windows_do_not_depend_on_blocks(reduction, padding, window, samples, data):
    scorer = TorchScorer(make_detector(reduction=reduction, **padding), window=window, device="cpu")
    sound = make_sound(samples)
    whole = joined(score_samples(scorer, sound))
    assert len(whole) == output_frames(scorer, samples)
    cuts = sorted(data.draw(st.lists(st.integers(0, samples), max_size=6)))
    np.testing.assert_array_equal(joined(score_blocks(scorer, np.split(sound, cuts))), whole)


@pytest.mark.parametrize("scaling", ["fixed", "clip"])
@pytest.mark.parametrize("rate", [RATE, 6000])
def test_a_part_of_a_file_is_that_of_the_whole_file(tmp_path, rng, scaling, rate):
    scorer = TorchScorer(make_detector(scaling=scaling), window=0.5, device="cpu")
    path = tmp_path / "a.wav"
    audio.write(path, make_sound(5 * rate), rate, subtype="FLOAT")
    whole = joined(score_samples(scorer, audio.read(path, rate=RATE)))
    np.testing.assert_allclose(joined(score_recording(scorer, path)), whole, rtol=0, atol=1e-5)
    for _ in range(12):
        first, last = sorted(rng.choice(len(whole) + 1, 2, replace=False).tolist())
        found = joined(score_recording(scorer, path, first=first, last=last, block=rng.uniform(0.05, 2)))
        np.testing.assert_allclose(found, whole[first:last], rtol=0, atol=1e-5)


def test_the_window_rule_as_it_is_written():
    detector = make_detector(reduction=4)
    scorer = TorchScorer(detector, window=1.0, device="cpu")
    sound = make_sound(10_000)
    step = 4 * 128
    assert scorer.frames(RATE) // 4 == 8
    starts = [0, 4, 8, 11]  # half overlapping; the last is moved back to (10,000 - 4000) // 512
    bounds = [0, 6, 10, 13, output_frames(scorer, 10_000)]  # two frames into each window but the first
    parts = []
    for k, start in enumerate(starts):
        end = len(sound) if start == starts[-1] else start * step + RATE
        parts.append(score_whole(detector, sound[start * step : end])[bounds[k] - start : bounds[k + 1] - start])
    np.testing.assert_allclose(joined(score_samples(scorer, sound)), np.concatenate(parts), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["cnn", "crnn"])
def test_a_clip_is_scored_as_the_detector_does(name):
    detector = make_detector(name=name)
    sound = make_sound(RATE)
    found = joined(score_samples(TorchScorer(detector, window=1.0, device="cpu"), sound))
    np.testing.assert_allclose(found, score_whole(detector, sound), rtol=0, atol=1e-5)


@pytest.mark.parametrize("scaling", ["fixed", "clip"])
@pytest.mark.parametrize("reduction", [1, 16])
def test_frames_come_out_within_the_latency(scaling, reduction):
    scorer = TorchScorer(make_detector(scaling=scaling, reduction=reduction), window=1.0, device="cpu")
    sound = make_sound(12_000)
    heard = 0

    def arriving():
        nonlocal heard
        for block in np.split(sound, range(97, len(sound), 97)):
            heard += len(block)
            yield block

    step, given_out, late = scorer.hop_samples * reduction, 0, []
    for p in score_blocks(scorer, arriving()):
        if heard < len(sound):
            late.append(heard - given_out * step)
        given_out += len(p)
    assert late
    assert max(late) <= latency(scorer) * RATE + 97  # a block is heard as a whole
    if scaling == "fixed":
        assert max(late) >= latency(scorer) * RATE  # so the bound is no larger than need be


def test_only_a_network_that_sees_so_far_has_a_context():
    assert TorchScorer(make_detector(scaling="fixed"), device="cpu").context == 22
    assert TorchScorer(make_detector(scaling="clip"), device="cpu").context is None
    assert TorchScorer(make_detector(name="crnn", scaling="fixed"), device="cpu").context is None


@pytest.mark.parametrize("supervision", ["weak", "strong"])
def test_clips_too_short_for_an_output_frame_can_decide_when_to_stop(supervision, tmp_path):
    detector = make_detector(reduction=16, classes=("dog",))
    audio.write(tmp_path / "a.wav", make_sound(1200), RATE)
    clip = Clip("a.wav", (Source(tmp_path / "a.wav"),))
    bags = Bags(build_store(tmp_path / "store", [clip], detector.features), LabelTable([("a.wav", 0.0, 0.3, "dog")]))
    options = load_recipe("quick").changed({"supervision": supervision}).training
    (batch,) = bags.pieces(1, patch=1e6)
    filled = batch.filled_up(detector.reduction, -detector.features.range_db)
    with torch.inference_mode():
        P = detector.eval()(filled.features, filled.mask).static.item()
    scores = validate(detector, bags, options, Fabric(accelerator="cpu", devices=1)).scores
    assert scores["loss"] == pytest.approx(-np.log(P), rel=1e-5)
    assert scores["accuracy"] == float(P >= 0.5)


def test_no_sound_gives_nothing_and_little_sound_one_frame():
    scorer = TorchScorer(make_detector(scaling="fixed"), device="cpu")
    assert list(score_blocks(scorer, [])) == []
    assert joined(score_samples(scorer, make_sound(5))).shape == (1, 2)
    assert feature_frames(scorer, 5) == 4


@pytest.mark.parametrize("name", ["cnn", "crnn", "vgg-gru"])
@pytest.mark.parametrize("reduction", [1, 4, 16])
def test_a_frozen_network_is_the_same_function(name, reduction):
    network = make_detector(name=name, reduction=reduction).network.double()
    x = 20 * torch.randn(2, 16, 50, dtype=torch.float64) - 40
    with torch.inference_mode():
        due = network(x)
        torch.testing.assert_close(frozen(network)(x), due, rtol=0, atol=1e-9 * due.abs().max().item())


def test_a_network_of_ones_own_is_left_as_it_is():
    own = torch.nn.Identity()
    assert frozen(own) is own


def test_several_threads_share_a_scorer():
    scorer = TorchScorer(make_detector(scaling="fixed"), device="cpu")
    sounds = [make_sound(5000, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as threads:
        for sound, p in zip(sounds, threads.map(scorer.score, sounds), strict=True):
            np.testing.assert_array_equal(p, scorer.score(sound))


def test_a_scorer_does_not_follow_its_detector():
    detector, sound = make_detector(), make_sound(4000)
    scorer = TorchScorer(detector, device="cpu")
    before = scorer.score(sound)
    torch.nn.init.zeros_(detector.head.weight)
    np.testing.assert_array_equal(scorer.score(sound), before)


def save(path, detector, **provenance):
    network, pool = {"name": "cnn", "reduction": 4, "width": 0.25}, {"name": "rap"}
    save_detector(path, detector, network=network, pool=pool, provenance=provenance)


def test_a_model_file_says_how_much_it_wants_to_see(tmp_path):
    save(tmp_path / "model.safetensors", make_detector(), patch=4.0)
    scorer = load_scorer(tmp_path, device="cpu")  # a run folder
    assert scorer.window == 4.0
    assert scorer.classes == CLASSES
    save(tmp_path / "old.safetensors", make_detector())
    assert load_scorer(tmp_path / "old.safetensors", device="cpu").window == 10.0


def test_fingerprints_tell_models_apart(tmp_path):
    save(tmp_path / "a.safetensors", make_detector())
    save(tmp_path / "same.safetensors", make_detector())
    save(tmp_path / "weights.safetensors", make_detector(seed=1))
    save(tmp_path / "features.safetensors", make_detector(scaling="fixed"))
    marks = {path.stem: load_scorer(path, device="cpu").fingerprint for path in tmp_path.iterdir()}
    assert marks["a"] == marks["same"]
    assert len(set(marks.values())) == 3


def test_what_a_scorer_cannot_be_asked(tmp_path):
    scorer = TorchScorer(make_detector(scaling="fixed"), device="cpu")
    path = tmp_path / "a.wav"
    audio.write(path, make_sound(RATE), RATE)
    with pytest.raises(ArgumentError, match="expected output frames within 0 to 8, got 9 to 8"):
        score_recording(scorer, path, first=9)
    with pytest.raises(ArgumentError, match="block: expected a positive number of seconds, got 0"):
        score_recording(scorer, path, block=0)
    save(tmp_path / "bad.safetensors", make_detector(), patch="long")
    with pytest.raises(ModelFileError, match=r"provenance\.patch: expected a number above 0 and at most 86400"):
        load_scorer(tmp_path / "bad.safetensors")


def make_scores(rng, frames=700, hop=0.37, filename="night\n\udcff.flac"):
    p = rng.uniform(0, 1, (frames, 2)).astype(np.float32)
    return RecordingScores(filename, CLASSES, p, hop / 16, 16, 16 * frames + 3, frames * hop + 0.1, fingerprint="abc")


def test_scores_survive_the_disk(tmp_path, rng):
    scores = make_scores(rng)
    write_scores(tmp_path / "a.npz", scores)
    found = read_scores(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.p, scores.p)
    for name in ("filename", "classes", "hop", "feature_hop", "reduction", "frames", "duration", "fingerprint"):
        assert getattr(found, name) == getattr(scores, name)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_damaged_scores_are_refused(tmp_path, rng):
    path = tmp_path / "a.npz"
    with pytest.raises(DataError, match=r"a\.npz: no such file"):
        read_scores(path)
    write_scores(path, make_scores(rng))
    whole = path.read_bytes()
    for damaged in (b"", whole[:-40], whole[: len(whole) // 2], b"PK" + whole[4:], b"something else"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.npz: damaged, truncated, or not an \.npz file"):
            read_scores(path)
    for about in ("{}", "[]", "not json"):
        np.savez(path, about=about, p=np.zeros((3, 2), np.float32))
        with pytest.raises(
            DataError,
            match=r"a\.npz: (version: expected|expected a table|not valid JSON)",
        ):
            read_scores(path)
    scores = make_scores(rng)
    write_scores(path, RecordingScores(**{**scores.__dict__, "classes": ("one",)}))
    with pytest.raises(DataError, match=r"a\.npz: p: expected shape \(frames, 1\), got \(700, 2\)"):
        read_scores(path)


def test_scores_of_a_newer_version_are_refused(tmp_path, rng, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("earmark.inference.scores._VERSION", 2)
        write_scores(tmp_path / "a.npz", make_scores(rng))
    with pytest.raises(DataError, match="written by a newer earmark"):
        read_scores(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["max", "mean", "auto", "rap"])
@pytest.mark.parametrize("horizon", [None, 60.0, 1.0, 0.37, 1000.0])
def test_scores_are_pooled_again_as_the_operator_does(rng, name, horizon):
    scores, pool = make_scores(rng), create_pool(name, 2)
    intervals, P = repool(scores, pool, horizon)
    middles = (np.arange(700) + 0.5) * 0.37
    assert intervals[0, 0] == 0
    assert intervals[-1, 1] == (scores.duration if horizon is None else min(scores.duration, horizon * len(intervals)))
    np.testing.assert_array_equal(intervals[1:, 0], intervals[:-1, 1])
    for (onset, offset), found in zip(intervals, P, strict=True):
        own = torch.from_numpy(scores.p[(middles >= onset) & (middles < offset)].astype(np.float32))
        np.testing.assert_allclose(found, pool(own[None])[0].detach(), atol=1e-6)
        stream = pool.stream()
        stream.update(own)
        np.testing.assert_allclose(found, stream.value(), rtol=0, atol=1e-7)


@pytest.mark.parametrize("reduction", [1, 2])
def test_a_frame_behind_the_end_belongs_to_the_last_stretch(reduction):
    frames = 63 // reduction + 1  # 6.3 s, and one frame more, as features are centred
    p = np.zeros((frames, 2), np.float32)
    p[-1] = 0.75
    scores = RecordingScores("a.wav", CLASSES, p, 0.1, reduction, 64, 6.3, fingerprint="abc")
    for horizon in (0.9, 2.1, 6.3):
        intervals, P = repool(scores, create_pool("max", 2), horizon)
        assert (np.diff(intervals) > 0.89).all()
        assert intervals[-1, 1] == pytest.approx(6.3)
        assert len(P) == round(6.3 / horizon)
        np.testing.assert_array_equal(P[-1], 0.75)


def test_pooling_again_is_the_same_in_small_chunks(rng, monkeypatch):
    scores, pool = make_scores(rng), create_pool("rap", 2)
    due = [repool(scores, pool, horizon)[1] for horizon in (None, 5.0)]
    monkeypatch.setattr("earmark.inference.scores._CHUNK", 32)
    for horizon, P in zip((None, 5.0), due, strict=True):
        np.testing.assert_allclose(repool(scores, pool, horizon)[1], P, atol=1e-7)


def test_a_stretch_holds_at_least_a_frame(rng):
    scores = make_scores(rng)
    with pytest.raises(ArgumentError, match=r"horizon: expected at least the 0\.370 s between frames, got 0\.1 s"):
        repool(scores, create_pool("max", 2), 0.1)


def test_an_operator_that_needs_all_frames_says_so(rng):
    with pytest.raises(ArgumentError, match="cannot be streamed"):
        repool(make_scores(rng), create_pool("hierarchical", 2))
