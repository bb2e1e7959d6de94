"""A detector evaluated: from probabilities of clips to the numbers of the paper's tables."""

import json

import numpy as np
import pytest

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import event, segment
from earmark.evaluation.scoring import EvaluationOptions, evaluate_events, evaluate_scores, segment_curve
from earmark.events import Decoder
from earmark.inference.scores import RecordingScores
from earmark.settings import load_recipe

SETTINGS = load_recipe("quick").changed({"width": "0.25", "pool": "cap"})
HOP, REDUCTION = 0.1, 4
TRUTH = LabelTable([("a", 2.0, 4.0, "dog")], filenames=["a", "b"])
PSDS = EvaluationOptions(with_psds=True)


def clip(name, active, frames=25, low=0.1, high=0.9):
    """Probabilities (25 frames of 0.4 s, one class) that are high where `active` says."""
    p = np.full((frames, 1), low, np.float32)
    p[active] = high
    n = frames * REDUCTION
    return RecordingScores(name, ("dog",), p, HOP, REDUCTION, n, n * HOP, p.mean(0))


def test_a_perfect_detector_is_perfect():
    clips = [clip("a", slice(5, 10)), clip("b", slice(0, 0))]
    reference = LabelTable([("a", 2.0, 4.0, "dog")], filenames=["a", "b"])
    evaluation = evaluate_scores(clips, reference)
    assert evaluation.dynamic.overall.f1 == 1
    assert evaluation.maximum.overall.f1 == 1
    assert evaluation.pooled.overall.recall == 0  # a fifth of the frames is not enough for the mean
    assert evaluation.intervals["dynamic.f1"] == (1, 1)


def test_times_are_those_of_the_frames():
    """Interpolated, the threshold is crossed half-way between the middles of two frames, which is where they meet."""
    middle, authors = (
        evaluate_scores([clip("a", slice(5, 10))], TRUTH, EvaluationOptions(align=align)).estimate()
        for align in ("middle", "authors")
    )
    (found,), (early,) = middle.of("a"), authors.of("a")
    assert (found.onset, found.offset) == pytest.approx((2.0, 4.0), abs=HOP)
    assert early.onset < found.onset
    with pytest.raises(ArgumentError, match="align='center' is not known"):
        EvaluationOptions(align="center")
    with pytest.raises(ArgumentError, match="convention='best' is not known"):
        EvaluationOptions(convention="best")


def test_clip_scores_of_events_differ_where_a_peak_is_interpolated():
    """The middle of an output frame of 4 feature frames lies between two of these, so none has its probability."""
    clips = [clip("a", slice(5, 6), high=0.54), clip("b", slice(0, 0))]
    evaluation = evaluate_scores(clips, TRUTH)
    assert evaluation.maximum.overall.recall == 1
    assert clips[0].p.max() > 0.5 > clips[0].dense().max()
    assert evaluate_events(evaluation.estimate(), TRUTH).maximum.overall.recall == 0


def test_dynamic_scores_are_those_of_the_decoded_events(rng):
    clips = [clip(str(i), rng.random(25) < 0.3) for i in range(30)]
    rows = [(str(i), float(t), float(t + 1.5), "dog") for i in range(30) for t in rng.uniform(0, 8, 2)]
    reference = LabelTable(rows)
    evaluation = evaluate_scores(clips, reference)
    again = segment.evaluate(reference, evaluation.estimate(), durations={str(i): 10.0 for i in range(30)})
    assert repr(evaluation.dynamic) == repr(again)  # in which NaN is NaN
    low, high = evaluation.intervals["dynamic.f1"]
    assert low < evaluation.dynamic.overall.f1 < high
    assert evaluation.dynamic.macro.f1 == again.macro.f1
    json.dumps(evaluation.to_dict())


def test_a_class_that_is_never_detected_has_the_same_macro_f1_everywhere():
    """Macro F1 is where conventions differ: 1/2 by the default one, 1 by sed_eval's, which leaves the class out."""
    reference = LabelTable([("a", 2.0, 4.0, "dog"), ("a", 0.0, 1.0, "owl")])
    p = np.concatenate([clip("a", slice(5, 10)).p, np.zeros((25, 1), np.float32)], axis=1)
    scores = [RecordingScores("a", ("dog", "owl"), p, HOP, REDUCTION, 100, 10.0, p.mean(0))]
    of_model = evaluate_scores(scores, reference)
    events, durations = of_model.estimate(), {"a": 10.0}
    of_events = evaluate_events(events, reference, durations=durations)
    assert of_model.dynamic.macro.f1 == of_events.dynamic.macro.f1 == 0.5
    assert segment.evaluate(reference, events, segment=1.0, durations=durations).macro.f1 == 0.5
    assert event.evaluate(reference, events).macro.f1 == of_model.event.macro.f1 == 0.5
    theirs = evaluate_scores(scores, reference, EvaluationOptions(convention="sed_eval"))
    assert theirs.dynamic.macro.f1 == segment.evaluate(reference, events, convention="sed_eval").macro.f1 == 1.0


def test_classes_of_probabilities_and_reference_must_agree():
    reference = LabelTable([("a", 2.0, 4.0, "dog"), ("a", 0.0, 1.0, "owl")])
    with pytest.raises(ArgumentError, match=r"expected probabilities of the reference's classes \(dog, owl\), got dog"):
        evaluate_scores([clip("a", slice(5, 10))], reference)


def test_weak_references_have_static_scores_only():
    evaluation = evaluate_scores([clip("a", slice(5, 10))], LabelTable([("a", None, None, "dog")]))
    assert evaluation.dynamic is None
    assert evaluation.maximum.overall.f1 == 1
    assert set(evaluation.intervals) == {"static.maximum.f1", "static.pooled.f1"}
    with pytest.raises(ArgumentError, match="a curve needs probabilities"):
        segment_curve(evaluate_events(TRUTH, TRUTH), TRUTH)
    with pytest.raises(DataError, match="expected at least one clip to evaluate, got none"):
        evaluate_scores([], LabelTable([("a", None, None, "dog")]))


def test_events_found_elsewhere_are_evaluated_like_a_models_own():
    clips = [clip("a", slice(5, 12)), clip("b", slice(3, 4))]
    whole = evaluate_scores(clips, TRUTH)
    durations = {c.filename: c.duration for c in clips}
    again = evaluate_events(whole.estimate(), TRUTH, durations=durations)
    assert again.scores["reference_fingerprint"] == whole.scores["reference_fingerprint"]
    np.testing.assert_equal(again.to_dict()["dynamic"], whole.to_dict()["dynamic"])
    np.testing.assert_equal(again.to_dict()["event"], whole.to_dict()["event"])
    assert again.maximum.overall == whole.maximum.overall
    assert again.pooled is again.psds is again.scores["decoder"] is None
    assert evaluate_events(LabelTable([("a", None, None, "dog")]), TRUTH).dynamic is None  # it does not say when


def test_events_may_be_rows():
    rows = [row[:4] for row in TRUTH]
    evaluation = evaluate_events(iter(rows), iter(rows))
    assert evaluation.dynamic == evaluate_events(LabelTable(rows), LabelTable(rows)).dynamic


def test_psds_is_computed_where_asked_for():
    clips = [clip("a", slice(5, 10)), clip("b", slice(0, 0))]
    assert evaluate_scores(clips, TRUTH).psds is None
    assert evaluate_scores(clips, TRUTH, PSDS).psds == {"psds1": 1.0, "psds2": 1.0}
    durations = {"a": 10.0, "b": 10.0}
    assert evaluate_events(TRUTH, TRUTH, PSDS, durations=durations).psds == {"psds1": 1.0, "psds2": 1.0}
    with pytest.raises(ArgumentError, match="it needs durations"):
        evaluate_events(TRUTH, TRUTH, PSDS)
    point = LabelTable([*TRUTH, ("a", 9.0, 9.0, "dog")], filenames=["a", "b"])
    evaluation = evaluate_scores(clips, point, PSDS)
    assert evaluation.psds == {"psds1": 1.0, "psds2": 1.0}
    assert evaluation.notes[0] == "PSDS leaves out 1 reference event of length 0"


def test_psds_of_events_follows_their_confidence():
    """A false alarm above a hit, at 50 per hour: nothing is found below that."""
    for confidence, value in ((0.9, 0.5), (0.1, 1.0)):
        rows = [("a", 2.0, 4.0, "dog", True, 0.5), ("b", 1.0, 3.0, "dog", True, confidence)]
        found = evaluate_events(LabelTable(rows), TRUTH, PSDS, durations={"a": 36.0, "b": 36.0})
        assert found.psds["psds1"] == pytest.approx(value)


def test_static_and_dynamic_decisions_share_the_threshold_but_the_pooled_one_does_not():
    clips = [clip("a", slice(5, 10), high=0.4), clip("b", slice(0, 0))]
    evaluation = evaluate_scores(clips, TRUTH, EvaluationOptions(decoder=Decoder(threshold=0.3)))
    assert evaluation.maximum.overall.f1 == evaluation.dynamic.overall.f1 == 1
    assert evaluate_scores(clips, TRUTH).maximum.overall.recall == 0


def test_the_curve_passes_through_the_decision():
    clips = [clip("a", slice(5, 12)), clip("b", slice(3, 4), high=0.7)]
    evaluation = evaluate_scores(clips, TRUTH)
    curve = segment_curve(evaluation, TRUTH)
    at = curve.at(0.5)
    assert curve.precision[at] == pytest.approx(evaluation.dynamic.overall.precision)
    assert curve.recall[at] == pytest.approx(evaluation.dynamic.overall.recall)
