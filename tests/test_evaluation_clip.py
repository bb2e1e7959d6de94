"""Clips judged: decisions by two rules, and the order of clips equal to scikit-learn's."""

import math

import numpy as np
import pytest

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import clip, event, segment

NAN = math.nan


@pytest.fixture
def data(rng):
    """Targets with some unknown, and probabilities with many ties: (40, 6) each."""
    targets = (rng.random((40, 6)) < 0.4).astype(float)
    targets[rng.random((40, 6)) < 0.2] = NAN
    return targets, np.round(rng.random((40, 6)), 1)


def test_decisions_equal_scikit_learn(data):
    metrics = pytest.importorskip("sklearn.metrics")
    targets, P = data
    result = clip.evaluate(targets, P, rule="pooled", threshold=0.7)
    lines = []
    for c in range(6):
        known = ~np.isnan(targets[:, c])
        lines.append(
            metrics.precision_recall_fscore_support(targets[known, c], P[known, c] >= 0.7, average="binary")[:3]
        )
        own = result.per_class[str(c)]
        np.testing.assert_allclose((own.precision, own.recall, own.f1), lines[-1], rtol=1e-12)
    macro = (result.macro.precision, result.macro.recall, result.macro.f1)
    np.testing.assert_allclose(macro, np.mean(lines, axis=0), rtol=1e-12)
    known = ~np.isnan(targets)
    micro = metrics.precision_recall_fscore_support(targets[known], P[known] >= 0.7, average="binary")[:3]
    own = result.overall
    np.testing.assert_allclose((own.precision, own.recall, own.f1), micro, rtol=1e-12)


def test_order_of_clips_equals_scikit_learn(rng):
    metrics = pytest.importorskip("sklearn.metrics")
    for n in (2, 3, 10, 200):
        for decimals in (0, 1, 2, 12):
            true, P = (rng.random((n, 20)) < 0.4).astype(float), np.round(rng.random((n, 20)), decimals)
            true[0], true[1] = 0, 1
            ours = clip.evaluate(true, P, rule="maximum")
            precision = metrics.average_precision_score(true, P, average=None)
            np.testing.assert_allclose(list(ours.average_precision.values()), precision, rtol=1e-12)
            auc = metrics.roc_auc_score(true, P, average=None)
            np.testing.assert_allclose(list(ours.roc_auc.values()), auc, rtol=1e-12, atol=1e-15)


def test_unknown_clips_are_as_if_they_were_not_there(data):
    targets, P = data
    every = clip.evaluate(targets, P, rule="maximum")
    for c in range(6):
        known = ~np.isnan(targets[:, c])
        alone = clip.evaluate(targets[known, c : c + 1], P[known, c : c + 1], rule="maximum")
        assert every.average_precision[str(c)] == alone.average_precision["0"]
        assert every.roc_auc[str(c)] == alone.roc_auc["0"]
    found = clip.counts(targets, P)
    assert (found.tp + found.fp + found.fn + found.tn == ~np.isnan(targets)).all()


def test_classes_without_positives_or_negatives_are_left_out_of_the_mean():
    targets = [[1, 0, 1, NAN], [0, 0, 1, NAN]]
    result = clip.evaluate(targets, [[0.9, 0.1, 0.2, 0.3], [0.1, 0.1, 0.2, 0.3]], rule="maximum", classes=list("abcd"))
    np.testing.assert_equal(list(result.average_precision.values()), [1.0, NAN, 1.0, NAN])
    np.testing.assert_equal(list(result.roc_auc.values()), [1.0, NAN, NAN, NAN])
    assert (result.macro_average_precision, result.macro_roc_auc, result.rule) == (1.0, 1.0, "maximum")


def test_each_class_may_have_its_threshold():
    found = clip.counts([[1, 1], [0, 0]], [[0.5, 0.5], [0.5, 0.5]], threshold=[0.5, 0.51], classes=["a", "b"])
    assert found.tp.tolist() == [[1, 0], [0, 0]]
    assert found.fp.tolist() == [[0, 0], [1, 0]]
    assert found.fn.tolist() == [[0, 1], [0, 0]]
    assert found.tn.tolist() == [[0, 0], [0, 1]]


def test_a_miss_and_a_false_alarm_in_one_clip_are_a_substitution():
    found = clip.counts([[1, 1, 0], [0, 1, 1], [0, 0, NAN]], [[0, 0, 1], [0, 1, 0], [1, 0, 1]], filenames=list("xyz"))
    assert found.substitutions.tolist() == [1, 0, 0]
    assert found.deletions.tolist() == [1, 1, 0]
    assert found.insertions.tolist() == [0, 0, 1]
    assert found.filenames == ("x", "y", "z")


def test_the_two_rules_differ_for_a_short_event_and_the_mean():
    dynamic = np.zeros((1, 20, 1))
    dynamic[0, 7] = 0.9
    by_maximum = clip.evaluate([[1]], dynamic.max(1), rule="maximum")
    by_pooled = clip.evaluate([[1]], dynamic.mean(1), rule="pooled")
    assert (by_maximum.overall.recall, by_pooled.overall.recall) == (1.0, 0.0)


def test_scores_print_as_a_table_that_fits_a_screen():
    rows = [("a.wav", 0, 1, "dog")]
    lines = ["class                   F1     P     R error rate", "dog                  1.000 1.000 1.000      0.000"]
    for metric in (segment, event):
        scores = metric.evaluate(rows, rows)
        assert str(scores).splitlines()[:2] == lines
        assert "<table" in scores._repr_html_()
    assert str(clip.evaluate([[1], [0]], [[0.9], [0.6]], rule="pooled", classes=["dog"])).splitlines() == [
        "class                   F1     P     R average precision ROC AUC",
        "dog                  0.667 0.500 1.000             1.000   1.000",
        "average (macro)      0.667 0.500 1.000             1.000   1.000",
        "all together (micro) 0.667 0.500 1.000                 -       -",
    ]


def test_labels_with_and_without_times_are_compared():
    reference = LabelTable(
        [("a", 0, 1, "dog"), ("b", None, None, "cat"), ("c", None, None, "dog", None)], filenames=["d"]
    )
    estimate = [("a", 7, 8, "dog"), ("a", None, None, "cat"), ("c", 0, 1, "dog")]
    found = clip.label_counts(reference, estimate)
    assert (found.filenames, found.classes) == (("d", "a", "b", "c"), ("cat", "dog"))
    assert found.tp.tolist() == [[0, 0], [0, 1], [0, 0], [0, 0]]
    assert found.fp.tolist() == [[0, 0], [1, 0], [0, 0], [0, 0]]
    assert found.fn.tolist() == [[0, 0], [0, 0], [1, 0], [0, 0]]
    assert found.tn.tolist() == [[1, 1], [0, 0], [0, 1], [1, 0]]
    assert clip.scores(found).overall.precision == 0.5


def test_names_of_labels_are_checked_as_for_segments():
    with pytest.raises(DataError, match=r"the estimate has 1 file \('b'\) that the reference does not have"):
        clip.label_counts([("a", 0, 1, "dog")], [("b", 0, 1, "dog")])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: clip.counts([1, 0], [1, 0]),
            ArgumentError,
            r"of shape \(clips, classes\), got \(2,\) and \(2,\)",
        ),
        (lambda: clip.counts([[1, 0]], [[1]]), ArgumentError, r"got \(1, 2\) and \(1, 1\)"),
        (lambda: clip.counts([[0.5]], [[1]]), DataError, "expected targets of 1, 0, or NaN for unknown"),
        (lambda: clip.counts([[1], [0]], [[1], [NAN]]), DataError, "the probability of class 0 in clip 1 is NaN"),
        (
            lambda: clip.counts([[1]], [[1]], threshold=[0.5, 0.5]),
            ArgumentError,
            r"one for each of 1 classes, got \(2,",
        ),
        (lambda: clip.counts([[1]], [[1]], classes=["a", "b"]), ArgumentError, "1 clips and 2 classes are named"),
        (lambda: clip.evaluate([[1]], [[1]], rule="mean"), ArgumentError, "rule='mean' is not known"),
    ],
)
def test_calls_that_mean_nothing(call, error, message):
    with pytest.raises(error, match=message):
        call()
