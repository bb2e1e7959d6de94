"""One inference path: `evaluate` and `detect` give the same events, to the last digit."""

import numpy as np
import pytest
import torch

import earmark
from earmark.audio import read, write
from earmark.checkpoint import load_detector, save_detector
from earmark.detection.job import JobOptions, run_job
from earmark.errors import ArgumentError
from earmark.evaluation import Evaluation, EvaluationOptions
from earmark.events import Decoder
from earmark.features import LogMel
from earmark.formats import read_labels
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


def save_model(path, *, network="cnn", scaling="fixed", pool="cap", **options):
    """An untrained model with probabilities far from 0.5."""
    small = {"network": network, "width": 0.25, "scaling": scaling, "pool": pool, "reduction": 4, "patch": 4.0}
    settings = load_recipe("quick").changed({**small, **options})
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
    detector, files = earmark.load(model, device="cpu", pooled=True), [folder / name for name in RATES]
    p = np.concatenate([scores.p for scores in detector.score_files(files)])
    decoder = Decoder(threshold=tuple(np.median(p, axis=0).tolist()))  # so that there are events
    options = EvaluationOptions(decoder=decoder)
    evaluation = earmark.evaluate(detector, folder, out=tmp_path / "evaluated", options=options)
    detected = detector.detect(files, decoder=decoder)
    assert len(detected) > 5
    assert rows(evaluation.estimate()) == rows(detected.renamed({str(path): path.name for path in files}))
    # The files that both commands write agree as well.
    run_job(detector, [folder], tmp_path / "found", JobOptions(decoder=decoder))
    table = read_labels(tmp_path / "found" / "events.csv")
    assert [row[:4] for row in rows(table)] == [
        row[:4] for row in rows(Evaluation.load(tmp_path / "evaluated").estimate())
    ]


def test_labels_may_be_a_path_and_numbers_those_of_numpy(folder, tmp_path):
    model, out = save_model(tmp_path / "model.safetensors"), tmp_path / "evaluated"
    options = EvaluationOptions(segment=np.float32(0.5), decoder=Decoder(threshold=np.float32(0.5)))
    evaluation = earmark.evaluate(model, folder, out=out, reference=folder / "labels.tsv", options=options)
    loaded = Evaluation.load(out)
    assert (loaded.scores["segment"], loaded.scores["reference"]) == (0.5, str(folder / "labels.tsv"))
    assert earmark.report(evaluation, tmp_path / "page.html", data=folder).is_file()


def test_a_seed_may_be_a_number_of_numpy(tmp_path):
    made = [
        earmark.synth("durations", tmp_path / str(k), clips=1, seed=s, workers=1)
        for k, s in enumerate((3, np.int64(3)))
    ]
    assert (made[0].out / "labels.tsv").read_bytes() == (made[1].out / "labels.tsv").read_bytes()


@pytest.mark.parametrize(("device", "message"), [("gpu", "device='gpu' is not known"), ("cuda", "no GPU found; use")])
def test_a_device_that_is_not_there(tmp_path, monkeypatch, device, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ArgumentError, match=message):
        earmark.load(save_model(tmp_path / "model.safetensors"), device=device)


def test_an_operator_that_uses_embeddings_pools_as_the_model_does(folder, tmp_path):
    settings = load_recipe("quick").changed({"width": 0.25, "scaling": "fixed", "pool": "mean"})
    size = create_detector(settings, CLASSES).head.in_features
    model = save_model(tmp_path / "model.safetensors", pool="attention", embedding_dim=size)
    scores = earmark.evaluate(model, folder, out=tmp_path / "evaluated").probabilities()
    detector = load_detector(model)
    log_mel = LogMel(detector.features)
    for name, clip in scores.items():
        with torch.inference_mode():
            whole = detector(log_mel(torch.from_numpy(read(folder / name, rate=detector.features.rate))[None]))
        assert clip.p.shape[1] == len(CLASSES)
        np.testing.assert_allclose(clip.p, whole.dynamic[0].numpy(), atol=1e-4)
        np.testing.assert_allclose(clip.pooled, whole.static[0].numpy(), atol=1e-4)
