"""Events judged: equal to sed_eval to the last digit, on its own data, a printed report and random crowds of events."""

import re

import numpy as np
import pytest
from reference import sed_eval

from earmark.annotations import Label, LabelTable
from earmark.counts import ratios
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import event
from earmark.formats import read_labels


@pytest.fixture(scope="module")
def oracle():
    return sed_eval.metrics_class("EventBasedMetrics")


def judged_by(oracle, reference, estimate, **options):
    """What sed_eval says, handed the files of the reference one by one."""
    return sed_eval.results(oracle(list(reference.classes), **options), reference, estimate, reference.filenames)


def assert_equal(ours, theirs):
    sed_eval.assert_equal(ours, theirs, ["f_measure", "error_rate"])


def crowd(rng):
    """Events so close that hits can be chosen in many ways, which is where substitutions differ: two tables."""
    labels = ["cat", "dog", "owl"][: rng.integers(1, 4)]
    names = ["a.wav", "b.wav"][: rng.integers(1, 3)]

    def rows():
        for name in names:
            for _ in range(rng.integers(0, 14)):
                onset = float(np.round(rng.uniform(0, 2), rng.choice([1, 6])))
                yield name, onset, onset + float(np.round(rng.uniform(0, 1), 2)), str(rng.choice(labels))

    return LabelTable(rows(), filenames=names, classes=labels), LabelTable(rows(), filenames=names, classes=labels)


@pytest.mark.parametrize("matching", ["optimal", "greedy"])
@pytest.mark.parametrize(("onset", "offset"), [(True, True), (True, False), (False, True)])
def test_random_crowds_equal_sed_eval(matching, onset, offset, oracle, rng):
    for _ in range(80):
        reference, estimate = crowd(rng)
        options = {
            "t_collar": float(rng.choice([0.1, 0.2, 0.3])),
            "percentage_of_length": float(rng.choice([0.0, 0.2, 0.5])),
        }
        theirs = judged_by(
            oracle,
            reference,
            estimate,
            evaluate_onset=onset,
            evaluate_offset=offset,
            event_matching_type=matching,
            **options,
        )
        ours = event.evaluate(
            reference, estimate, onset=onset, offset=offset, matching=matching, convention="sed_eval", **options
        )
        assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("true", "said"),
    [
        ("office_snr0_high_v2", "office_snr0_high_v2_detected"),
        ("mini_reference", "mini_detected_a"),
        ("binary1", "binary1_detected"),
        ("street_fold1_reference", "street_fold1_detected"),
    ],
)
@pytest.mark.parametrize("matching", ["optimal", "greedy"])
def test_pairs_that_sed_eval_is_tested_with(true, said, matching, shared, oracle):
    folder = shared / "metrics" / "sed_eval"
    reference = read_labels(folder / f"{true}.txt")
    estimate = read_labels(folder / f"{said}.txt").renamed({said: true})
    for share in (0.2, 0.5):
        ours = event.evaluate(reference, estimate, percentage_of_length=share, matching=matching, convention="sed_eval")
        theirs = judged_by(oracle, reference, estimate, percentage_of_length=share, event_matching_type=matching)
        assert_equal(ours, theirs)


def test_desed_has_the_scores_of_the_printed_report(shared, oracle):
    folder = shared / "metrics" / "desed_student"
    reference, estimate = read_labels(folder / "validation.tsv"), read_labels(folder / "predictions0.5.csv")
    ours = event.evaluate(reference, estimate, convention="sed_eval")
    assert_equal(ours, judged_by(oracle, reference, estimate, percentage_of_length=0.2))
    # One onset of 3,312 in the file is 0.2 s away to the last digit (7.688 - 7.488 s): a hit by the file, for sed_eval
    # too. The report agrees in every number looked at here if that one is a miss. Why it is one there is not known;
    # times may have been rounded for the file after the report was made.
    edge = ("Y1eaWEhXlpS0_110.000_120.000.wav", 7.488)
    rows = [row._replace(onset=row.onset - 1e-9) if row[:2] == edge else row for row in estimate]
    assert sum(row[:2] == edge for row in estimate) == 1
    ours = event.evaluate(reference, rows)
    overall, rest = (folder / "event_f1.txt").read_text().split("Class-wise average metrics")
    macro, table = rest.split("Class-wise metrics")
    for own, text in ((ours.overall, overall), (ours.macro, macro)):
        for name, said in (("f1", r"F-measure \(F1\)"), ("precision", "Precision"), ("recall", "Recall")):
            assert f"{100 * getattr(own, name):.2f}" == re.search(rf"{said} *: ([\d.]+) %", text)[1]
        for name, said in (("error_rate", r"Error rate \(ER\)"), ("deletion_rate", "Deletion rate")):
            assert f"{getattr(own, name):.2f}" == re.search(rf"{said} *: ([\d.]+)", text)[1]
    dog = ours.per_class["Dog"]
    line = re.search(r"Dog +\| (\d+) +(\d+) +\| ([\d.]+)%", table)
    assert (f"{dog.n_ref:.0f}", f"{dog.n_est:.0f}", f"{100 * dog.f1:.1f}") == line.groups()


def test_counts_are_per_clip_and_scores_are_their_sums(rng):
    reference, estimate = crowd(rng)
    while len(reference.filenames) < 2:
        reference, estimate = crowd(rng)
    found = event.counts(reference, estimate)
    assert found.filenames == ("a.wav", "b.wav")
    for i, name in enumerate(found.filenames):
        alone = event.counts(reference.select([name]), estimate.select([name]))
        np.testing.assert_array_equal(found.tp[i], alone.tp[0])
        assert found.substitutions[i] == alone.substitutions[0]
    np.testing.assert_array_equal(found.deletions, found.fn.sum(1) - found.substitutions)
    np.testing.assert_array_equal(found.insertions, found.fp.sum(1) - found.substitutions)
    doubled = ratios(found, [2, 0])["overall"]
    once = event.evaluate(reference.select(["a.wav"]), estimate.select(["a.wav"])).overall
    np.testing.assert_allclose(doubled["error_rate"], once.error_rate, rtol=1e-12)


def test_optimal_matching_finds_what_greedy_misses():
    reference = [("a.wav", 1.1, 3.0, "dog"), ("a.wav", 1.3, 3.0, "dog")]
    estimate = [("a.wav", 1.2, 3.0, "dog"), ("a.wav", 0.95, 3.0, "dog")]
    assert event.evaluate(reference, estimate).overall.f1 == 1.0
    assert event.evaluate(reference, estimate, matching="greedy").overall.f1 == 0.5


def test_a_long_chain_of_events_can_be_shifted_by_one():
    """The last estimate fits the first event only, which is taken: to make room, all others must move up."""
    n = 2000
    reference = [("a.wav", 1 + 0.3 * i, 700.0, "dog") for i in range(n)]
    estimate = [("a.wav", 1.15 + 0.3 * i, 700.0, "dog") for i in range(n - 1)] + [("a.wav", 0.9, 700.0, "dog")]
    assert event.counts(reference, estimate).tp.sum() == n


def test_the_largest_set_of_hits_that_is_taken_is_the_one_of_sed_eval(oracle):
    rows = [("a.wav", 1.0, 2.0, "dog"), ("a.wav", 1.2, 2.0, "dog")]
    estimate = LabelTable([("a.wav", 1.1, 2.0, "dog"), ("a.wav", 0.85, 2.0, "cat")])
    rates = []
    for reference in (rows, rows[::-1]):  # the first dog is a hit, and the cat a substitution for the early one or not
        table = LabelTable(reference, classes=["cat", "dog"])
        ours = event.evaluate(table, estimate, convention="sed_eval")
        assert_equal(ours, judged_by(oracle, table, estimate, percentage_of_length=0.2))
        rates.append((ours.overall.f1, ours.overall.error_rate))
    assert rates == [(0.5, 1.0), (0.5, 0.5)]


def test_collars():
    reference = [("a.wav", 2.0, 12.0, "dog")]

    def found(begins, ends, **options):
        return event.counts(reference, [("a.wav", begins, ends, "dog")], **options).tp.sum()

    assert found(2.19, 12.0) == 1
    assert found(2.21, 12.0) == 0
    assert found(2.21, 12.0, onset=False) == 1
    assert found(2.0, 13.9) == 1  # a fifth of ten seconds
    assert found(2.0, 14.1) == 0
    assert found(2.0, 14.1, percentage_of_length=0.5) == 1
    assert found(2.0, 20.0, offset=False) == 1
    assert found(2.0, 12.1, percentage_of_length=0, t_collar=0) == 0
    assert found(2.2, 12.0) == 0  # 2.2 - 2.0 is 0.20000000000000018, for sed_eval too


def test_clips_without_estimate_or_reference_are_judged():
    reference = LabelTable([("a.wav", 0.0, 1.0, "dog")], filenames=["silent.wav"])
    found = event.counts(reference, [("silent.wav", 0.0, 1.0, "dog")])
    assert found.filenames == ("silent.wav", "a.wav")
    assert (found.insertions.tolist(), found.deletions.tolist()) == ([1, 0], [0, 1])
    found = event.counts(reference, [("other.wav", 0.0, 1.0, "dog")], filenames=["other.wav"])
    assert found.insertions.tolist() == [0, 0, 1]


def test_classes_without_times_are_left_out_of_their_clip():
    reference = LabelTable([Label("a.wav", None, None, "cat"), ("a.wav", 0.0, 1.0, "dog")])
    found = event.counts(reference, [("a.wav", 0.0, 1.0, "cat"), ("a.wav", 0.0, 1.0, "dog")])
    assert (found.tp.sum(), found.fp.sum(), found.fn.sum()) == (1, 0, 0)


def test_nothing_anywhere_has_no_scores():
    nothing = LabelTable([], filenames=["a.wav"], classes=["dog"])
    for convention, error_rate in (("plain", np.nan), ("sed_eval", 0.0)):
        overall = event.evaluate(nothing, [], convention=convention).overall
        np.testing.assert_equal([overall.f1, overall.accuracy, overall.error_rate], [np.nan, np.nan, error_rate])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"t_collar": -0.1}, r"expected t_collar in seconds, not below 0, got -0.1"),
        ({"t_collar": np.nan}, r"not below 0, got nan"),
        ({"percentage_of_length": 20}, r"expected percentage_of_length in \[0, 1\], got 20"),
        ({"onset": False, "offset": False}, r"onset and offset are both off"),
        ({"matching": "optimum"}, r"matching='optimum' is not known; did you mean 'optimal'\? Choose from: opt"),
    ],
)
def test_calls_that_mean_nothing(options, message):
    with pytest.raises(ArgumentError, match=message):
        event.evaluate([("a.wav", 0.0, 1.0, "dog")], [], **options)


def test_estimates_for_unknown_files_are_not_dropped():
    with pytest.raises(DataError, match=r"1 file \('b.wav'\) that the reference does not have"):
        event.evaluate([("a.wav", 0.0, 1.0, "dog")], [("b.wav", 0.0, 1.0, "dog")])
    found = event.counts([("a.wav", 0.0, 1.0, "dog")], [("b.wav", 0.0, 1.0, "dog")], missing="empty")
    assert found.insertions.tolist() == [0, 1]
