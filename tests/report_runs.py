"""Evaluated runs for the tests of reports, made without training."""

import json

import numpy as np
import torch

from earmark import audio
from earmark.checkpoint import write_tensors
from earmark.datasets import open_data
from earmark.evaluation.scoring import evaluate_scores
from earmark.features import FeatureConfig
from earmark.inference.scores import RecordingScores
from earmark.settings import load_recipe

NASTY = "<script>alert(1)</script>"
CLASSES = ("dog_bark", NASTY, 'rain & "wind" $x$ 🐦')
FEATURES = FeatureConfig(rate=8000, n_fft=512, hop_samples=400, n_bands=32)
REDUCTION, SECONDS, CLIPS = 4, 4.0, 6


def write_data(folder):
    """Six clips of noise; each class is heard for a second, in two of three."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    lines = ["filename\tonset\toffset\tlabel\tsplit"]
    for i in range(CLIPS):
        name = f"tom & jerry 'n' {i}.wav"
        audio.write(folder / name, 0.1 * rng.standard_normal(int(SECONDS * FEATURES.rate)), FEATURES.rate)
        for c, label in enumerate(CLASSES):
            if (i + c) % 3:
                lines.append(f"{name}\t{c + 0.5}\t{c + 1.5}\t{label}\ttest")
    (folder / "labels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_run(folder, data, pool, seed, noise, *, alpha=None):
    """A run folder with everything an evaluated run has, whose detector is wrong in a share `noise` of the frames."""
    rng = np.random.default_rng(seed)
    collection = open_data(data, "test")
    labels = collection.labels.replace(classes=CLASSES)
    frames = round(SECONDS / FEATURES.hop)
    clips = []
    for clip in collection.clips:
        truth = labels.frame_targets(clip.filename, frames // REDUCTION, FEATURES.hop * REDUCTION)
        wrong = rng.random(truth.shape) < noise
        p = np.where(wrong, 1 - truth, truth) * 0.8 + 0.2 * rng.random(truth.shape)
        p = np.clip(p, 0, 1).astype(np.float32)
        clips.append(RecordingScores(clip.filename, CLASSES, p, FEATURES.hop, REDUCTION, frames, SECONDS, p.mean(0)))
    folder.mkdir(parents=True)
    settings = load_recipe("quick").changed({"pool": pool, "seed": str(seed)})
    (folder / "config.toml").write_text(settings.to_toml())
    provenance = {
        "command": f"earmark train {data} --out {folder} --pool {pool} --set seed={seed}",
        "data_source": str(data),
        "training_clips": 30,
        "validation_clips": 5,
        "seed": seed,
        "versions": {"earmark": "0.1.0"},
    }
    about = {"classes": list(CLASSES), "features": FEATURES.to_dict(), "provenance": provenance}
    about |= {"network": settings.network, "pool": settings.pool}
    write_tensors(folder / "model.safetensors", "model", {"none": torch.zeros(1)}, about)
    if alpha:
        line = {"epoch": 1, "loss": 0.5, "validation": {"loss": 0.5, "accuracy": 0.9, "f1": 0.5}, "best": True}
        (folder / "log.jsonl").write_text(json.dumps({**line, "learning_rate": 1e-3, "alpha": alpha}) + "\n")
    known = {"model": str(folder / "model.safetensors"), "data": str(data), "split": "test", "alpha": alpha}
    evaluate_scores(clips, labels, about={**known, "align": "middle"}).save(folder)
    return folder
