"""A detector, judged: from probabilities of clips to the numbers of the paper's tables."""

import json

import numpy as np
import pytest
import torch

from earmark.annotations import LabelTable
from earmark.bags import Bags, build_store
from earmark.datasets import open_data
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import segment
from earmark.evaluation.models import Grid, decode_clip, judge, judge_events, segment_curve, tune_decoder
from earmark.events import Decoder
from earmark.inference.bags import ClipProbabilities, score_bags
from earmark.settings import load_recipe
from earmark.synthesis import synthesise
from earmark.training import create_detector

SETTINGS = load_recipe("quick").changed({"width": "0.25", "pool": "cap"})
HOP, REDUCTION = 0.1, 4
TRUTH = LabelTable([("a", 2.0, 4.0, "dog")], filenames=["a", "b"])


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
    assert set(judgement.intervals()) == {"static.maximum.f1", "static.pooled.f1"}
    with pytest.raises(ArgumentError, match="a curve needs probabilities"):
        segment_curve(judge_events(TRUTH, TRUTH), TRUTH)
    with pytest.raises(DataError, match="no clips to judge"):
        judge([], LabelTable([("a", None, None, "dog")]), hop=HOP, reduction=REDUCTION)


def test_events_found_elsewhere_are_judged_like_a_models_own():
    clips = [clip("a", slice(5, 12)), clip("b", slice(3, 4))]
    whole = judge(clips, TRUTH, hop=HOP, reduction=REDUCTION)
    durations = {c.filename: c.duration for c in clips}
    again = judge_events(whole.estimate, TRUTH, durations=durations)
    assert again.fingerprint == whole.fingerprint
    np.testing.assert_equal(again.to_dict()["dynamic"], whole.to_dict()["dynamic"])
    np.testing.assert_equal(again.to_dict()["event"], whole.to_dict()["event"])
    assert again.maximum.overall == whole.maximum.overall
    assert again.pooled is again.psds is again.decoder is None
    assert judge_events(LabelTable([("a", None, None, "dog")]), TRUTH).dynamic is None  # it does not say when


def test_psds_is_computed_where_asked_for():
    clips = [clip("a", slice(5, 10)), clip("b", slice(0, 0))]
    assert judge(clips, TRUTH, hop=HOP, reduction=REDUCTION).psds is None
    assert judge(clips, TRUTH, hop=HOP, reduction=REDUCTION, with_psds=True).psds == {"psds1": 1.0, "psds2": 1.0}
    durations = {"a": 10.0, "b": 10.0}
    assert judge_events(TRUTH, TRUTH, durations=durations, with_psds=True).psds == {"psds1": 1.0, "psds2": 1.0}
    with pytest.raises(ArgumentError, match="it needs durations"):
        judge_events(TRUTH, TRUTH, with_psds=True)
    point = LabelTable([*TRUTH, ("a", 9.0, 9.0, "dog")], filenames=["a", "b"])
    judgement = judge(clips, point, hop=HOP, reduction=REDUCTION, with_psds=True)
    assert judgement.psds == {"psds1": 1.0, "psds2": 1.0}
    assert judgement.notes[0] == "PSDS leaves out 1 reference events of no length"


def test_psds_of_events_follows_their_confidence():
    """A false alarm above a hit, at 50 per hour: nothing is found below that."""
    for confidence, value in ((0.9, 0.5), (0.1, 1.0)):
        rows = [("a", 2.0, 4.0, "dog", True, 0.5), ("b", 1.0, 3.0, "dog", True, confidence)]
        found = judge_events(LabelTable(rows), TRUTH, durations={"a": 36.0, "b": 36.0}, with_psds=True)
        assert found.psds["psds1"] == pytest.approx(value)


def test_static_and_dynamic_decisions_share_the_threshold_but_the_pooled_one_does_not():
    clips = [clip("a", slice(5, 10), high=0.4), clip("b", slice(0, 0))]
    judgement = judge(clips, TRUTH, hop=HOP, reduction=REDUCTION, decoder=Decoder(threshold=0.3))
    assert judgement.maximum.overall.f1 == judgement.dynamic.overall.f1 == 1
    assert judge(clips, TRUTH, hop=HOP, reduction=REDUCTION).maximum.overall.recall == 0
    tuned = tune_decoder(clips, TRUTH, Grid(HOP, REDUCTION), tuned_on="these")
    assert 0.1 < tuned.threshold[0] <= 0.4
    assert tuned.tuned_on.startswith("these: 2 clips")


def test_the_curve_passes_through_the_decision():
    clips = [clip("a", slice(5, 12)), clip("b", slice(3, 4), high=0.7)]
    judgement = judge(clips, TRUTH, hop=HOP, reduction=REDUCTION)
    curve = segment_curve(judgement, TRUTH)
    at = curve.at(0.5)
    assert curve.precision[at] == pytest.approx(judgement.dynamic.overall.precision)
    assert curve.recall[at] == pytest.approx(judgement.dynamic.overall.recall)


@pytest.fixture(scope="module")
def soundscapes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("soundscapes")
    synthesise("durations", folder / "data", clips=6, workers=1)
    return folder


def test_probabilities_of_bags_are_those_of_the_detector(soundscapes):
    """In float64, where batches of four and of one agree to the last digit of the float32 that comes out."""
    data = open_data(soundscapes / "data")
    store = build_store(soundscapes / "store", data.clips, SETTINGS.features)
    detector = create_detector(SETTINGS, data.classes).double().eval()
    detector.register_forward_pre_hook(lambda _, args: (args[0].double(), *args[1:]))
    found = {c.filename: c for c in score_bags(detector, Bags(store, data.labels), batch_size=4)}
    assert sorted(found) == sorted(data.labels.filenames)
    for name, c in found.items():
        x = torch.from_numpy(np.array(store[name][0], np.float32)).T[None]
        with torch.no_grad():
            output = detector(x)
        np.testing.assert_allclose(c.dynamic, output.dynamic[0], rtol=1e-7)
        np.testing.assert_allclose(c.static, output.static[0], rtol=1e-7)
        assert c.duration == 10.0
