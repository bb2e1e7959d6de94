"""One inference path: `evaluate` and `detect` give the same events, to the last digit."""

import csv

import numpy as np
import pytest
import torch

import earmark
from earmark.audio import write
from earmark.checkpoint import save_detector
from earmark.detection.job import run_job
from earmark.settings import load_recipe
from earmark.training import create_detector

CLASSES = ("hum", "click")
RATES = {"a.wav": 8000, "b.flac": 44100, "c.wav": 16000}
SECONDS = {"a.wav": 1.0, "b.flac": 4.0, "c.wav": 9.3}  # shorter than, as long as and longer than the model's window


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three clips of several rates and lengths, all of split test."""
    root = tmp_path_factory.mktemp("clips")
    rng = np.random.default_rng(5)
    rows = ["filename\tonset\toffset\tlabel\tsplit"]
    for name, rate in RATES.items():
        t = np.arange(int(SECONDS[name] * rate)) / rate
        sound = 0.02 * rng.normal(size=len(t)) + 0.5 * np.sin(2 * np.pi * 900 * t) * (np.sin(4 * t) > 0)
        write(root / name, sound.astype(np.float32), rate)
        rows += [f"{name}\t0.1\t0.6\t{label}\ttest" for label in CLASSES]
    (root / "labels.tsv").write_text("\n".join(rows) + "\n")
    return root


def save_model(path, *, network, scaling, pool="cap"):
    """An untrained model with something to say."""
    small = {"network": network, "width": 0.25, "scaling": scaling, "pool": pool, "reduction": 4, "patch": 4.0}
    settings = load_recipe("quick").changed(small)
    detector = create_detector(settings, CLASSES)
    torch.nn.init.normal_(detector.head.weight, std=3.0)
    about = {"patch": settings.training.patch}
    save_detector(path, detector, network=settings.network, pool=settings.pool, provenance=about)
    return path


def rows(table):
    return [(event.filename, event.onset, event.offset, event.label, event.confidence) for event in table]


@pytest.mark.parametrize("network", ["cnn", "crnn"])
@pytest.mark.parametrize("scaling", ["fixed", "clip"])
def test_evaluate_and_detect_find_the_same_events(folder, tmp_path, network, scaling):
    model = save_model(tmp_path / "model.safetensors", network=network, scaling=scaling)
    evaluation = earmark.evaluate(model, folder, out=tmp_path / "evaluated")
    files = [folder / name for name in RATES]
    detected = earmark.load(model, device="cpu").detect(files)
    names = {str(path): path.name for path in files}
    assert len(detected) > 10
    assert rows(evaluation.estimate()) == rows(detected.renamed(names))
    # And in the files that both commands write.
    run_job(model, [folder], tmp_path / "found")
    with open(tmp_path / "found" / "events.csv", newline="") as file:
        found = [(r["filename"], float(r["onset"]), float(r["offset"]), r["label"]) for r in csv.DictReader(file)]
    saved = earmark.evaluation.result.Evaluation.load(tmp_path / "evaluated").estimate()
    assert sorted(found) == sorted(row[:4] for row in rows(saved))


def test_an_exported_model_gives_the_same_probabilities(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    from earmark.export import export_model

    model = save_model(tmp_path / "model.safetensors", network="cnn", scaling="fixed")
    export_model(model, tmp_path / "model.onnx")
    ours, theirs = (
        earmark.evaluate(path, folder, out=tmp_path / path.suffix[1:]).probabilities()
        for path in (model, tmp_path / "model.onnx")
    )
    for name, scores in ours.items():
        np.testing.assert_allclose(theirs[name].p, scores.p, rtol=0, atol=1e-4)


def test_an_operator_that_uses_embeddings_pools_a_clip_as_the_model_does(folder, tmp_path):
    model = save_model(tmp_path / "model.safetensors", network="cnn", scaling="fixed", pool="attention")
    scores = earmark.evaluate(model, folder, out=tmp_path / "evaluated").probabilities()
    detector = earmark.load(model, device="cpu", pooled=True).scorer.detector
    for clip in scores.values():
        assert clip.pooled.shape == (2,)
        assert clip.p.shape[1] == 2
        expected = detector.pool(torch.from_numpy(clip.p)[None])[0] if not detector.pool.embedding_dim else None
        if expected is not None:
            np.testing.assert_allclose(clip.pooled, expected.numpy(), atol=1e-6)
