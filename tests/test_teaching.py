"""Self-training and averaged weights: what is known stays, rounds resume with the same bits, teachers may differ."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from run_files import log_of
from safetensors.torch import load_file

from earmark import api, audio
from earmark.annotations import Label, LabelTable
from earmark.bags import Bags, build_store
from earmark.checkpoint import load_detector
from earmark.datasets import open_data
from earmark.errors import ArgumentError
from earmark.files import locked
from earmark.loss import bag_loss, frame_loss, reduce_targets, taught_loss
from earmark.settings import Training, load_recipe
from earmark.training import create_detector
from earmark.training.averaging import Average
from earmark.training.run import _writing, run
from earmark.training.teaching import frame_targets, score_frames

RATE, SECONDS = 4000, 2
SMALL = {
    "rate": RATE,
    "n_fft": 256,
    "hop_samples": 128,
    "n_bands": 16,
    "width": 0.25,
    "patch": SECONDS,
    "batch_size": 8,
    "steps": 3,
    "epochs": 2,
    "pool": "linear",
    "monitor": "last",
}
SETTINGS = load_recipe("quick").changed(SMALL)
NAN = np.nan


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixteen recordings of noise, half of them with a beep; the last is three times as long."""
    root, rng = tmp_path_factory.mktemp("recordings"), np.random.default_rng(2)
    lines = ["filename,label,split"]
    for i in range(16):
        sound = 0.02 * rng.standard_normal(RATE * SECONDS * (3 if i == 15 else 1))
        if i % 2:
            at = rng.integers(0, RATE)
            sound[at : at + RATE // 2] += 0.3 * np.sin(2 * np.pi * 1000 * np.arange(RATE // 2) / RATE)
        audio.write(root / f"r{i}.wav", sound.astype(np.float32), RATE)
        lines.append(f"r{i}.wav,{'beep' if i % 2 else ''},{'validate' if i > 13 else 'train'}")
    (root / "labels.csv").write_text("\n".join(lines) + "\n")
    return root


class StoppedError(Exception):
    """Stands for whatever ends a process between two epochs."""


def files_of(out):
    """Everything that two identical runs have in common."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = path.relative_to(out).as_posix()
        if path.name == "model.safetensors":
            found[name] = {k: v.tolist() for k, v in load_file(path).items()}
        elif path.name == "config.toml":
            found[name] = path.read_text()
        elif path.name == "log.jsonl":
            found[name] = log_of(path.parent)
    return found


def bags_of(folder, tmp_path, **variants):
    data = open_data(folder)
    return data, Bags(build_store(tmp_path / "store", data.clips, SETTINGS.features, **variants), data.labels)


def test_each_round_is_a_run_and_a_stopped_one_resumes_with_the_same_bits(folder, fabric, tmp_path):
    settings = SETTINGS.changed({"rounds": 2, "average": 0.5, "filter_db": 6, "mixup": 0.5})
    options = {"cache": tmp_path / "cache", "fabric": fabric}
    stages = []
    whole = run(
        open_data(folder), settings, tmp_path / "whole", **options, on_progress=lambda p: stages.append(p.stage)
    )
    assert whole.is_finished
    assert {stage for stage in stages if "training" in stage} == {f"training, round {k} of 3" for k in (1, 2, 3)}
    expected = files_of(tmp_path / "whole")
    assert {name for name in expected if name.endswith("log.jsonl")} == {
        "log.jsonl",
        "round-0/log.jsonl",
        "round-1/log.jsonl",
    }
    models = [expected[f"{name}model.safetensors"] for name in ("round-0/", "round-1/", "")]
    assert models[0] != models[1] != models[2]

    for stop_after in (2, 3, 6):  # epochs, over all rounds; the last is not saved
        out, done = tmp_path / f"stopped-{stop_after}", 0

        def tell(progress, limit=stop_after):
            nonlocal done
            if progress.stage.startswith("training") and progress.step == 3 and not np.isnan(progress.score):
                done += 1
            if done == limit:
                raise StoppedError

        with pytest.raises(StoppedError):
            run(open_data(folder), settings, out, **options, on_progress=tell)
        with pytest.raises(ArgumentError, match="already contains a run"):
            run(open_data(folder), settings, out, **options)
        run(open_data(folder), settings, out, **options, resume=True)
        assert files_of(out) == expected


@pytest.mark.parametrize("part", ["round-0", "fold-1", "fold-1/round-0"])
def test_a_part_of_a_run_cannot_be_resumed_while_the_run_is_trained(folder, fabric, tmp_path, part):
    """A round or a fold is a complete run folder, which another process would lock separately."""
    out = tmp_path / "run"
    for place in {out, (out / part).parent}:
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.toml").touch()
    refused = pytest.raises(ArgumentError, match=f"{out}: process .* is using this folder")
    with locked(out), refused:
        run(open_data(folder), load_recipe("quick"), out / part, cache=tmp_path, fabric=fabric, resume=True)


def test_an_interrupted_round_has_no_figure(tmp_path):
    """When it is finished it has none either: what is left would differ from a run that was not interrupted."""
    stopped = SimpleNamespace(path=tmp_path / "round-0", is_finished=False)
    assert api._completed(stopped, tmp_path, None, None, None) is stopped
    assert list(tmp_path.iterdir()) == []


def test_a_figure_that_was_being_written_by_a_killed_process_is_removed(fabric, tmp_path):
    (tmp_path / "figures").mkdir()
    mine, draft = (tmp_path / "figures" / name for name in (".learning-original.png", ".learning~0123abcd.png"))
    for path in (mine, draft):
        path.touch()
    with _writing(tmp_path, fabric, resume=False):
        assert list((tmp_path / "figures").iterdir()) == [mine]


def test_what_labels_say_is_kept(folder, tmp_path):
    _, bags = bags_of(folder, tmp_path)
    n, hop = bags.frames["r1.wav"], bags.config.hop
    rows = [
        Label("r1.wav", 0.5, 1.0, "timed"),
        Label("r1.wav", None, None, "tagged"),
        Label("r1.wav", None, None, "weak score"),
        Label("r1.wav", None, None, "unknown", None),
    ]
    classes = ("timed", "tagged", "weak score", "unknown", "absent")
    labels = LabelTable(rows, classes=classes, filenames=["r1.wav"], complete=True)
    ramp = np.linspace(0, 0.5, n, dtype=np.float32)
    p = np.stack([ramp, ramp, ramp / 10, ramp, ramp], 1)
    own = Bags(build_store(tmp_path / "store", open_data(folder).clips, SETTINGS.features), labels)
    for use_times in (True, False):
        targets = frame_targets(own, labels, {"r1.wav": p}, hop=hop, use_times=use_times, mixtures={})["r1.wav"]
        timed = labels.frame_targets("r1.wav", n, hop)[:, 0]
        np.testing.assert_allclose(targets[:, 0], timed if use_times else 2 * ramp, atol=1e-6)
        np.testing.assert_allclose(targets[:, 1], 2 * ramp, atol=1e-6)  # divided by its maximum
        np.testing.assert_allclose(targets[:, 2], ramp / 10, atol=1e-6)  # which is too small here
        assert np.isnan(targets[:, 3]).all()
        assert (targets[:, 4] == 0).all()


def test_targets_of_a_mixture_are_the_larger_of_both(folder, tmp_path):
    data, bags = bags_of(folder, tmp_path)
    n, long = bags.frames["r1.wav"], bags.frames["r15.wav"]
    scores = {name: np.full((frames, 1), 0.5, np.float32) for name, frames in bags.frames.items()}
    scores["r1.wav"] = np.linspace(0, 1, n, dtype=np.float32)[:, None]
    scores["r15.wav"] = np.linspace(1, 0, long, dtype=np.float32)[:, None]
    pairs = {"r0.wav": ("r1.wav", "r2.wav"), "r2.wav": ("r3.wav", "r5.wav"), "r15.wav": ("r1.wav", "r3.wav")}
    known = {name: pair for name, pair in pairs.items() if name == "r15.wav"}
    targets = frame_targets(bags, data.labels, scores, hop=bags.config.hop, use_times=False, mixtures=known)
    np.testing.assert_allclose(targets["r15.wav"][:n], np.maximum(targets["r1.wav"], targets["r3.wav"]))
    assert (targets["r15.wav"][n:] == 0).all()
    assert targets["r15.wav"].shape == (long, 1)


def test_scores_are_those_of_the_detector_averaged_over_variants(folder, fabric, tmp_path):
    _, bags = bags_of(folder, tmp_path, semitones=(-1, 1))
    torch.manual_seed(0)
    detector = create_detector(SETTINGS, bags.classes)
    for module in detector.modules():  # statistics that a trained network would have
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
    scores = score_frames(detector, bags, 2 * SECONDS, fabric)
    assert set(scores) == set(bags.filenames)
    with torch.no_grad():
        for name in ("r0.wav", "r15.wav"):
            x = torch.from_numpy(bags._store[name].astype(np.float32)).transpose(1, 2)
            direct = detector.eval()(x).dynamic.mean(0).numpy()
            assert scores[name].shape == direct.shape
            # The long clip is cut in two; before the second patch begins, the end of the first is out of reach.
            inside = slice(0, 7) if name == "r15.wav" else slice(None)
            np.testing.assert_allclose(scores[name][inside], direct[inside], atol=1e-5)


def test_a_teacher_may_have_other_features_and_another_network(folder, fabric, tmp_path):
    options = {"cache": tmp_path / "cache", "fabric": fabric}
    run(open_data(folder), SETTINGS.changed({"hop_samples": 64, "pool": "cap"}), tmp_path / "teacher", **options)
    teacher = str(tmp_path / "teacher")
    student = SETTINGS.changed({"network": "vgg-gru", "reduction": 4, "hidden": 8, "teacher": teacher})
    result = run(open_data(folder), student, tmp_path / "student", **options)
    assert result.is_finished
    assert not (tmp_path / "student" / "round-0").exists()
    assert load_recipe(str(tmp_path / "student" / "config.toml")).training.rounds == 1
    assert load_detector(tmp_path / "student" / "model.safetensors").network.reduction == 4
    (tmp_path / "other").mkdir()
    for path in folder.glob("*.wav"):
        shutil.copy(path, tmp_path / "other")
    (tmp_path / "other" / "labels.csv").write_text((folder / "labels.csv").read_text().replace("beep", "boop"))
    with pytest.raises(ArgumentError, match="expected a model of boop, got one of beep"):
        run(open_data(tmp_path / "other"), student, tmp_path / "third", **options)


def test_the_first_round_with_a_teacher_belongs_to_a_run_too(folder, fabric, tmp_path):
    options = {"cache": tmp_path / "cache", "fabric": fabric}
    run(open_data(folder), SETTINGS.changed({"epochs": 1}), tmp_path / "teacher", **options)
    settings = SETTINGS.changed({"teacher": str(tmp_path / "teacher"), "rounds": 2})

    def stop(progress):
        if progress.stage.startswith("training") and progress.epoch == 2:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(open_data(folder), settings, tmp_path / "out", **options, on_progress=stop)
    assert [path.parent.name for path in (tmp_path / "out").rglob("last.ckpt")] == ["round-1"]
    with pytest.raises(ArgumentError, match="already contains a run"):
        run(open_data(folder), settings, tmp_path / "out", **options)
    assert run(open_data(folder), settings, tmp_path / "out", **options, resume=True).is_finished


def test_strong_supervision_leaves_nothing_to_guess():
    with pytest.raises(ArgumentError, match="strong labels already cover all frames"):
        SETTINGS.changed({"supervision": "strong", "rounds": 1})


def test_the_loss_of_self_training_is_that_of_frames_and_half_that_of_bags():
    torch.manual_seed(1)
    detector = create_detector(SETTINGS, ("a", "b")).eval()
    output = detector(torch.randn(3, 16, 64))
    frames = torch.rand(3, 64, 2)
    frames[0, 5] = torch.nan
    bags = torch.tensor([[1.0, 0.0], [NAN, 1.0], [0.0, 0.0]])
    expected = frame_loss(output.logits, reduce_targets(frames, 8)) + bag_loss(output.static, bags) / 2
    torch.testing.assert_close(taught_loss(output, bags, frames, reduction=8), expected)


def test_reduced_targets_of_numbers_are_maxima():
    x = torch.tensor([0.2, 0.7, 0.1, NAN, 1.0, NAN])[None, :, None]
    torch.testing.assert_close(reduce_targets(x, 2).flatten(), torch.tensor([0.7, NAN, 1.0]), equal_nan=True)


def test_weights_are_averaged_over_the_last_epochs():
    detector = create_detector(SETTINGS, ("a",))
    average = Average(detector, Training(epochs=5, average=0.4))
    bias = detector.head.bias.detach()
    seen = []
    for epoch, value in enumerate((1.0, 2.0, 3.0, 4.0, 5.0)):
        bias.fill_(value)
        average.update(epoch)
        with average.applied():
            seen.append(float(bias))
        assert float(bias) == value
    assert seen == pytest.approx([1, 2, 3, 4, 4.15])
