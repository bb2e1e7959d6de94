"""A detector, judged: from probabilities of clips to the numbers of the paper's tables."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from earmark.annotations import LabelTable
from earmark.bags import Bags, build_store
from earmark.checkpoint import save_detector
from earmark.datasets import open_data
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import segment
from earmark.evaluation.models import decode_clip, judge
from earmark.events import Decoder
from earmark.inference import ClipProbabilities, score_bags
from earmark.settings import load_recipe
from earmark.synthesis import synthesise
from earmark.training import create_detector

SETTINGS = load_recipe("quick").changed({"width": "0.25", "pool": "cap"})
HOP, REDUCTION = 0.1, 4


def clip(name, active, frames=25, low=0.1, high=0.9):
    """Probabilities (25 frames of 0.4 s, one class) that are high where `active` says."""
    p = np.full((frames, 1), low, np.float32)
    p[active] = high
    return ClipProbabilities(name, p, p.mean(0), frames * REDUCTION, frames * REDUCTION * HOP)


def test_a_perfect_detector_is_perfect():
    clips = [clip("a", slice(5, 10)), clip("b", slice(0, 0))]
    reference = LabelTable([("a", 2.0, 4.0, "dog")], filenames=["a", "b"])
    judgement = judge(clips, reference, hop=HOP, reduction=REDUCTION)
    assert judgement.dynamic.overall.f1 == 1
    assert judgement.maximum.overall.f1 == 1
    assert judgement.pooled.overall.recall == 0  # a fifth of the frames is not enough for the mean
    assert judgement.intervals()["dynamic.f1"] == (1, 1)


def test_times_are_those_of_the_frames():
    """Interpolated, the threshold is crossed half-way between the middles of two frames, which is where they meet."""
    (event,) = decode_clip(clip("a", slice(5, 10)), Decoder(), ("dog",), HOP, REDUCTION, align="middle")
    assert (event.onset, event.offset) == pytest.approx((2.0, 4.0), abs=HOP)
    (early,) = decode_clip(clip("a", slice(5, 10)), Decoder(), ("dog",), HOP, REDUCTION, align="authors")
    assert early.onset < event.onset
    with pytest.raises(ArgumentError, match="align='center' is not known"):
        decode_clip(clip("a", slice(5, 10)), Decoder(), ("dog",), HOP, REDUCTION, align="center")


def test_dynamic_scores_are_those_of_the_decoded_events(rng):
    clips = [clip(str(i), rng.random(25) < 0.3) for i in range(30)]
    rows = [(str(i), float(t), float(t + 1.5), "dog") for i in range(30) for t in rng.uniform(0, 8, 2)]
    reference = LabelTable(rows)
    judgement = judge(clips, reference, hop=HOP, reduction=REDUCTION, convention="sed_eval")
    again = segment.evaluate(reference, judgement.estimate, durations={str(i): 10.0 for i in range(30)})
    assert judgement.dynamic == again
    low, high = judgement.intervals()["dynamic.f1"]
    assert low < judgement.dynamic.overall.f1 < high
    json.dumps(judgement.to_dict())


def test_weak_references_have_static_scores_only():
    judgement = judge([clip("a", slice(5, 10))], LabelTable([("a", None, None, "dog")]), hop=HOP, reduction=REDUCTION)
    assert judgement.dynamic is None
    assert judgement.maximum.overall.f1 == 1
    assert judgement.intervals() == {}
    with pytest.raises(DataError, match="no clips to judge"):
        judge([], LabelTable([("a", None, None, "dog")]), hop=HOP, reduction=REDUCTION)


@pytest.fixture(scope="module")
def soundscapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soundscapes")
    synthesise("durations", folder / "data", clips=6, workers=1)
    return folder


def test_probabilities_of_bags_are_those_of_the_detector(soundscapes):
    data = open_data(soundscapes / "data")
    store = build_store(soundscapes / "store", data.clips, SETTINGS.features)
    detector = create_detector(SETTINGS, data.classes).eval()
    found = {c.filename: c for c in score_bags(detector, Bags(store, data.labels), batch_size=4)}
    assert sorted(found) == sorted(data.labels.filenames)
    for name, c in found.items():
        x = torch.from_numpy(np.array(store[name][0], np.float32)).T[None]
        with torch.no_grad():
            output = detector(x)
        np.testing.assert_allclose(c.dynamic, output.dynamic[0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(c.static, output.static[0], rtol=1e-4, atol=1e-4)
        assert c.duration == 10.0


def test_the_command_judges_a_model(soundscapes):
    data = open_data(soundscapes / "data")
    detector = create_detector(SETTINGS, data.classes)
    model = soundscapes / "model.safetensors"
    save_detector(model, detector, network=SETTINGS.network, pool=SETTINGS.pool)

    def call(*more):
        command = [sys.executable, "-m", "earmark.cli", "evaluate", str(model), str(soundscapes / "data")]
        return subprocess.run([*command, "--cache", str(soundscapes), *more], capture_output=True, text=True)

    done = call("--split", "test", "--out", str(soundscapes / "judged"))
    assert done.returncode == 0, done.stderr
    assert "all together (micro)" in done.stdout
    scores = json.loads((soundscapes / "judged" / "scores.json").read_text())
    assert scores["clips"] == len(open_data(soundscapes / "data", "test"))
    assert set(scores["static"]) == {"maximum", "pooled"}
    assert (soundscapes / "judged" / "events.tsv").exists()
    wrong = call("--split", "tset")
    assert wrong.returncode == 2
    assert "did you mean 'test'?" in wrong.stderr
