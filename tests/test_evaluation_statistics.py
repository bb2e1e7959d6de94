"""Intervals cover, tests err as often as they say, and verdicts claim no more than the data do."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from earmark.counts import Counts, ratios
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import segment
from earmark.evaluation import statistics as module
from earmark.evaluation.statistics import (
    bootstrap,
    bootstrap_ratios,
    compare,
    compare_seeds,
    compare_systems,
    friedman,
    holm,
    ratio,
    seed_variance,
)

# Demsar (2006), Table 6: the area under the ROC curve of C4.5 with and without two options, on 14 data sets.
DEMSAR = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.975, 0.9749],  # printed as .975, but ranked third
        [0.957, 0.978, 0.946, 0.970],
    ]
)
DEMSAR_NAMES = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]


F1 = ratio("f1")
RECALL = ratio("recall")


@pytest.fixture
def few(monkeypatch):
    """200 resamples, for tests that simulate many samples."""
    monkeypatch.setattr(module, "_REPETITIONS", 200)


def one_class(tp, fp, fn):
    """Counts of clips with one class."""
    tp, fp, fn = (np.asarray(part)[:, None] for part in (tp, fp, fn))
    substitutions = np.zeros(len(tp), int)
    names = tuple(f"{i}.wav" for i in range(len(tp)))
    return Counts(names, ("a",), tp, fp, fn, None, substitutions, fn[:, 0], fp[:, 0])


def clips(rng, n, quality=1.5):
    """Counts of n clips that differ in how much there is to find, and in how hard it is."""
    n_ref = rng.poisson(rng.gamma(1.0, 4.0, n))
    tp = rng.binomial(n_ref, rng.beta(quality, 1.0, n))
    return one_class(tp, rng.poisson(rng.gamma(0.5, 2.0, n)), n_ref - tp)


def interval_of(counts, statistic=F1, **options):
    return bootstrap(lambda weights: statistic(counts, weights), len(counts.filenames), **options)


def some_counts(rng, n=30, n_classes=4):
    tp, fp, fn, tn = rng.integers(0, 6, (4, n, n_classes))
    tp[:, -1] = fp[:, -1] = fn[:, -1] = 0  # a class that is never there
    substitutions = np.minimum(fp.sum(1), fn.sum(1))
    names = tuple(f"{i}.wav" for i in range(n))
    labels = tuple("abcdefgh"[:n_classes])
    rest = (fn.sum(1) - substitutions, fp.sum(1) - substitutions)
    return Counts(names, labels, tp, fp, fn, tn, substitutions, *rest)


# Intervals


def test_the_interval_is_that_of_all_resamples_where_they_can_be_counted(monkeypatch):
    """Three clips: 27 resamples, each as likely as any other."""
    monkeypatch.setattr(module, "_REPETITIONS", 20_000)
    counts = one_class([3, 1, 2], [1, 0, 2], [0, 4, 2])
    every = [float(F1(counts.select(drawn))) for drawn in itertools.product(range(3), repeat=3)]
    interval = interval_of(counts, level=0.7)
    low, high = np.quantile(every, [0.15, 0.85], method="inverted_cdf")
    assert interval.value == pytest.approx(F1(counts))
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


def test_resamples_of_counts_are_the_scores_of_those_clips(rng, monkeypatch):
    monkeypatch.setattr(module, "_REPETITIONS", 5)
    counts = some_counts(rng)
    weights = next(module._resamples(rng, 30))
    assert weights.shape == (5, 30)
    assert (weights.sum(axis=1) == 30).all()
    cases = [
        ("overall", "f1"),
        ("overall", "error_rate"),
        ("macro", "f1"),
        ("per_class", "f1"),
        ("per_class", "recall"),
    ]
    for average, name in cases:
        for w, value in zip(weights, ratio(name, average)(counts, weights), strict=True):
            drawn = counts.select(np.repeat(np.arange(30), w.astype(int)))
            np.testing.assert_allclose(value, ratios(drawn)[average][name])


def test_intervals_of_every_average_hold_their_scores(rng):
    counts = some_counts(rng)
    for value, low, high in bootstrap_ratios(counts, ["f1", "error_rate", "macro.f1"]).values():
        assert low < value < high
    per_class = interval_of(counts, ratio("f1", "per_class"))
    assert per_class.value.shape == per_class.low.shape == (4,)
    assert (per_class.low < per_class.value)[:3].all()
    assert np.isnan([per_class.value[3], per_class.low[3], per_class.high[3]]).all()  # never there


def test_a_class_that_is_not_always_drawn_is_judged_where_it_is(rng):
    counts = some_counts(rng, n=3)
    only_once = {name: getattr(counts, name).copy() for name in ("tp", "fp", "fn")}
    for part in only_once.values():
        part[1:, 0] = 0
    only_once["tp"][0, 0] = 2
    interval = interval_of(replace(counts, **only_once), ratio("f1", "per_class"))
    assert np.isfinite([interval.low[0], interval.high[0]]).all()


def test_chunks_do_not_change_the_interval(rng, monkeypatch):
    counts = clips(rng, 40)
    first = interval_of(counts)
    monkeypatch.setattr(module, "_CHUNK", 40 * 7)
    assert interval_of(counts) == first
    assert sum(len(w) for w in module._resamples(rng, 40)) == 2000


def test_intervals_cover_the_truth_as_often_as_they_say(rng, few):
    """300 samples of 60 clips: 95% are 285, and three standard deviations 11."""
    truth = F1(clips(rng, 100_000))
    covered = 0
    for _ in range(300):
        interval = interval_of(clips(rng, 60))
        covered += bool(interval.low <= truth <= interval.high)
    assert 0.95 - 0.045 <= covered / 300 <= 0.95 + 0.04  # the percentile interval is a little narrow


def test_on_ordinary_sets_the_interval_is_as_good_as_a_bca_interval(rng):
    """scipy's, over the same clips: bounds agree to a tenth of the width."""
    counts = clips(rng, 200)
    interval = interval_of(counts)
    score = lambda index, axis=-1: F1(counts, np.apply_along_axis(np.bincount, axis, index, minlength=200))  # noqa: E731
    theirs = stats.bootstrap(
        (np.arange(200),), score, n_resamples=2000, method="BCa", random_state=rng
    ).confidence_interval
    width = interval.high - interval.low
    assert interval.low == pytest.approx(theirs.low, abs=0.1 * width)
    assert interval.high == pytest.approx(theirs.high, abs=0.1 * width)


# Two models


def test_the_p_value_is_exact_where_all_exchanges_can_be_tried(rng):
    a, b = clips(rng, 6), clips(rng, 6)
    both = a.joined(b)
    as_large = 0
    for keep in itertools.product([True, False], repeat=6):
        first = np.where(keep, np.arange(6), np.arange(6, 12))
        swapped = F1(both.select(first)) - F1(both.select((first + 6) % 12))
        as_large += abs(swapped) >= abs(F1(a) - F1(b)) - 1e-12
    assert compare(a, b, F1).p_value == as_large / 64


def test_random_exchanges_come_near_the_exact_p_value(rng):
    a, b = clips(rng, 11, 2.5), clips(rng, 11)
    exact = compare(a, b, F1, exchanges=2048).p_value
    assert compare(a, b, F1, exchanges=2047).p_value == pytest.approx(exact, abs=0.04)


def test_verdicts_do_not_depend_on_the_order_of_models_or_clips(rng):
    a, b = some_counts(rng), some_counts(rng)
    order = rng.permutation(30)
    one, other = compare(a, b, F1), compare(b, a, F1)
    assert other.difference == -one.difference
    assert compare(a, b.select(order), F1) == one
    assert other.p_value == pytest.approx(one.p_value, abs=1e-12)


def test_models_that_are_alike_are_told_apart_as_rarely_as_said(rng, few):
    """300 comparisons of models of one kind: 5% are 15, and three standard deviations 11."""
    p_values, claims = [], 0
    for _ in range(300):
        n_ref = rng.poisson(rng.gamma(1.0, 4.0, 40))
        quality = rng.beta(1.5, 1.0, 40)  # of the clip, for both models
        hits = rng.binomial(n_ref, quality, (2, 40))
        a, b = (one_class(tp, rng.poisson(1.0, 40), n_ref - tp) for tp in hits)
        verdict = compare(a, b, F1, exchanges=200)
        p_values.append(verdict.p_value)
        claims += verdict.is_different
    assert 4 <= np.count_nonzero(np.array(p_values) <= 0.05) <= 26
    assert claims <= 26
    assert stats.kstest(p_values, "uniform").pvalue > 0.001


def test_a_clear_difference_is_seen(rng, few):
    found = [compare(clips(rng, 80, 4.0), clips(rng, 80, 1.0), F1, exchanges=200) for _ in range(20)]
    assert sum(verdict.better == "A" for verdict in found) >= 18


def test_the_interval_of_the_difference_uses_that_clips_are_shared(rng):
    a = clips(rng, 100)
    b = replace(a, tp=a.tp - (a.tp > 4), fn=a.fn + (a.tp > 4))
    apart = interval_of(a)
    verdict = compare(a, b, F1)
    assert verdict.better == "A"
    assert verdict.interval[1] - verdict.interval[0] < (apart.high - apart.low) / 3


def test_verdicts_in_words(rng):
    a, b = one_class([8] * 30, [2] * 30, [2] * 30), one_class([6] * 30, [4] * 30, [4] * 30)
    better = compare(a, b, F1, names=("new", "old"))
    assert better.better == "new"
    assert better.text.startswith("new is better than old: f1 .800 vs .600, difference +.200 [+.200, +.200], p ")
    assert better.text.endswith("(30 clips)")
    turned = compare(b, a, F1, names=("old", "new"))
    assert turned.difference == pytest.approx(-0.2)
    assert turned.text == better.text
    same = compare(a, a, F1, names=("new", "copy"))
    assert (same.p_value, same.is_different, same.better) == (1.0, False, None)
    expected = "new and copy are not distinguishable: f1 .800 vs .800, difference +.000 [+.000, +.000], p 1.000"
    assert same.text == f"{expected} (30 clips)"


def test_less_is_better_where_errors_are_counted(rng):
    good, bad = some_counts(rng, 40), some_counts(rng, 40)
    bad = replace(bad, insertions=bad.insertions + 20)
    verdict = compare(good, bad, ratio("error_rate"))
    assert verdict.lower_is_better
    assert verdict.better == "A"
    assert "A is better than B: error_rate " in verdict.text


def test_no_score_is_no_difference():
    nothing, something = np.zeros(5, int), np.ones(5, int)
    verdict = compare(one_class(nothing, nothing, nothing), one_class(something, something, something), F1)
    assert np.isnan(verdict.difference)
    assert (verdict.p_value, verdict.better) == (1.0, None)


def test_a_table_of_models_is_adjusted(rng):
    models = {name: [clips(rng, 150)] for name in "abc"} | {"best": [clips(rng, 150, 30.0)]}
    verdicts = compare_systems(models, "b", F1)
    assert [v.names for v in verdicts] == [("b", "a"), ("b", "c"), ("b", "best")]
    single = [compare(models["b"][0], models[v.names[1]][0], F1) for v in verdicts]
    np.testing.assert_allclose([v.p_value for v in verdicts], holm([v.p_value for v in single]))
    assert {v.better for v in compare_systems(models, "best", F1)} == {"best"}


def test_many_models_still_can_differ(rng, monkeypatch):
    """With 5 others, 90 exchanges could never give a p-value that survives Holm's correction."""
    monkeypatch.setattr(module, "_REPETITIONS", 90)
    models = {str(i): [clips(rng, 150, 1.0 if i else 30.0)] for i in range(6)}
    assert all(v.better == "0" for v in compare_systems(models, "0", F1))


def test_no_model_of_a_table_is_called_better_by_chance(rng, few):
    """50 tables of four models alike: an error in 5% of tables would be 2.5; eight is three deviations more."""
    tables = 0
    for _ in range(50):
        models = {name: [clips(rng, 30)] for name in "abcd"}
        tables += any(v.is_different for v in compare_systems(models, "a", F1))
    assert tables <= 8


def test_real_labels_can_be_compared(rng):
    reference = [(f"{i}.wav", 0.0, 4.0, label) for i in range(20) for label in ("dog", "cat")]
    late = [(name, on + 1.0, off + 1.0, label) for name, on, off, label in reference]
    counts = [segment.counts(reference, estimate) for estimate in (reference, late)]
    assert compare(*counts, F1, names=("exact", "late")).better == "exact"
    assert compare(*counts, ratio("f1", "macro"), names=("exact", "late")).scores == (1.0, 0.75)


# Seeds


def trainings(rng, n_seeds, base, spread, noise=1.0):
    """Counts of each training: clips share their difficulty, trainings their luck. Its score is the recall."""
    n = len(base)
    luck = rng.normal(0, spread, (n_seeds, 1))
    p = 1 / (1 + np.exp(-(base + luck + rng.normal(0, noise, (n_seeds, n)))))
    return [hits_of_20(tp) for tp in rng.binomial(20, p)]


def hits_of_20(tp):
    return one_class(tp, np.zeros(len(tp), int), 20 - np.asarray(tp))


def test_variance_is_taken_apart_as_in_a_two_way_table(rng):
    """Of a mean, pseudo-values are the values: then it is the textbook's analysis of variance."""
    hits = rng.integers(0, 5, (3, 50)) + rng.integers(0, 10, 50) + rng.integers(0, 5, (3, 1))
    table = hits / 20
    found, from_seeds = seed_variance([hits_of_20(tp) for tp in hits], RECALL)
    rest = table - table.mean(1, keepdims=True) - table.mean(0) + table.mean()
    ms_seeds = 50 * table.mean(1).var(ddof=1)
    ms_clips = 3 * table.mean(0).var(ddof=1)
    ms_rest = (rest**2).sum() / (2 * 49)
    assert found.value == pytest.approx(table.mean())
    assert from_seeds == pytest.approx((ms_seeds - ms_rest) / 50)
    total = ms_seeds + ms_clips - ms_rest
    df = total**2 / (ms_seeds**2 / 2 + ms_clips**2 / 49 + ms_rest**2 / 98)
    reach = stats.t.ppf(0.975, df) * np.sqrt(total / 150)
    assert found[1:] == pytest.approx((table.mean() - reach, table.mean() + reach))


def test_variance_is_found_where_it_is(rng):
    base = rng.normal(0.5, 1.0, 300)
    lucky, from_lucky_seeds = seed_variance(trainings(rng, 8, base, 1.0), RECALL)
    steady, from_steady_seeds = seed_variance(trainings(rng, 8, base, 0.0), RECALL)
    assert from_lucky_seeds > 10 * from_steady_seeds
    assert lucky.high - lucky.low > 3 * (steady.high - steady.low)


@pytest.mark.parametrize(("n_seeds", "spread"), [(3, 0.0), (3, 0.2), (5, 0.5)])
def test_intervals_over_seeds_cover_the_truth(rng, n_seeds, spread):
    """200 times other seeds and other clips; 95% are 190, and three standard deviations 9. Too wide is allowed."""
    middles = (np.arange(10_000) + 0.5) / 10_000
    truth = np.mean(1 / (1 + np.exp(-stats.norm.ppf(middles, 0.5, np.sqrt(2 + spread**2)))))  # 1 of clips, 1 of noise
    covered = 0
    for _ in range(200):
        (_, low, high), _ = seed_variance(trainings(rng, n_seeds, rng.normal(0.5, 1.0, 60), spread), RECALL)
        covered += low <= truth <= high
    assert covered >= 180


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_trainings_that_are_alike_are_told_apart_as_rarely_as_said(rng, few, spread):
    """200 comparisons; 5% are 10, and three standard deviations 9."""
    claims = naive = 0
    for i in range(200):
        base = rng.normal(0.5, 1.0, 60)
        a, b = (trainings(rng, 3, base, spread) for _ in range(2))
        claims += compare_seeds(a, b, RECALL).is_different
        naive += i < 60 and compare(a[0], b[0], RECALL, exchanges=200).is_different
    assert claims <= 19
    if spread:  # what one training each would have claimed: luck taken for merit
        assert naive >= 12


def test_a_clear_difference_between_trainings_is_seen(rng):
    base = rng.normal(0.5, 1.0, 100)
    a, b = trainings(rng, 4, base + 0.6, 0.1), trainings(rng, 3, base, 0.1)
    verdict = compare_seeds(a, b, RECALL, names=("new", "old"))
    assert verdict.better == "new"
    assert verdict.text.endswith("(100 clips, 4 and 3 seeds)")
    assert compare_seeds(b, a, RECALL, names=("old", "new")).better == "new"


def test_trainings_without_any_variance_are_settled():
    a, b = [hits_of_20([16] * 5)] * 2, [hits_of_20([14] * 5)] * 2
    assert compare_seeds(a, a, RECALL).p_value == 1
    verdict = compare_seeds(a, b, RECALL)
    assert (verdict.p_value, verdict.better) == (0.0, "A")


# Ranks


def test_friedman_gives_the_numbers_of_demsars_example():
    scores = DEMSAR.copy()
    scores[1, 0] = 9.0  # so that C4.5, which is best there, is the best on average: the control of the example
    found = friedman(scores, DEMSAR_NAMES)
    assert found.control == "C4.5"
    assert np.round(found.average_ranks, 3) == pytest.approx([3.143, 2.000, 2.893, 1.964])
    assert found.chi2 == pytest.approx(9.28, abs=0.005)
    assert found.f == pytest.approx(3.69, abs=0.005)
    unadjusted = {"C4.5+m+cf": 0.016, "C4.5+m": 0.019, "C4.5+cf": 0.607}
    adjusted = dict(zip(unadjusted, (3 * 0.016, 3 * 0.016, 0.607), strict=True))  # Holm: the second is raised
    assert found.p_values == pytest.approx(adjusted, abs=0.002)
    assert found.indistinguishable == ("C4.5", "C4.5+cf")
    assert friedman(DEMSAR, DEMSAR_NAMES).control == "C4.5+m+cf"  # best on average


def test_friedman_is_scipys_without_ties_and_careful_with_them(rng):
    scores = rng.random((12, 5))
    found = friedman(scores, "abcde")
    expected = stats.friedmanchisquare(*scores.T)
    assert found.chi2 == pytest.approx(expected.statistic)
    assert found.p_value == pytest.approx(stats.f.sf(11 * found.chi2 / (12 * 4 - found.chi2), 4, 44))
    tied = friedman(DEMSAR, DEMSAR_NAMES)
    assert tied.chi2 < stats.friedmanchisquare(*DEMSAR.T).statistic


def test_methods_are_bold_as_in_table_three(rng):
    """Ten splits: two methods alike are the best, one is a little worse, one always far behind."""
    scores = np.column_stack([rng.normal(mean, 0.02, 10) for mean in (0.65, 0.645, 0.62, 0.4, 0.3)])
    found = friedman(scores, ["auto", "max", "cap", "mean", "none"])
    assert found.control in ("auto", "max")
    assert {"auto", "max"} <= set(found.indistinguishable)
    assert {"mean", "none"}.isdisjoint(found.indistinguishable)
    errors = friedman(1 - scores, ["auto", "max", "cap", "mean", "none"], lower_is_better=True)
    assert errors.indistinguishable == found.indistinguishable
    assert errors.average_ranks == found.average_ranks


def test_without_any_difference_all_are_indistinguishable(rng):
    errors = 0
    for _ in range(200):  # 5% are 10, and three standard deviations 9
        found = friedman(rng.random((10, 6)), "abcdef")
        errors += len(found.indistinguishable) < 6
    assert errors <= 19
    tied = friedman(np.ones((5, 3)), "abc")
    assert (tied.chi2, tied.p_value, len(tied.indistinguishable)) == (0.0, 1.0, 3)


def test_blocks_that_all_rank_alike():
    found = friedman(np.tile([0.3, 0.2, 0.1], (10, 1)), ["a", "b", "c"])
    assert (found.f, found.p_value, found.control) == (np.inf, 0.0, "a")
    assert found.indistinguishable == ("a",)
    assert found.p_values["c"] < found.p_values["b"]


def test_holm_raises_p_values_step_by_step():
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.5]), [0.09, 0.04, 0.09, 0.5])
    np.testing.assert_allclose(holm([0.9, 0.8]), [1.0, 1.0])
    assert holm([]).shape == (0,)


# What is refused


def test_what_means_nothing_is_refused(rng):
    counts, single = some_counts(rng), clips(rng, 1)
    with pytest.raises(ArgumentError, match=r"expected a level between 0 and 1, such as 0\.95, got 95"):
        interval_of(counts, level=95)
    with pytest.raises(ArgumentError, match=r"statistic='f2' is not known\. Choose from: f1, precision"):
        interval_of(counts, ratio("f2"))
    with pytest.raises(ArgumentError, match="average='micro' is not known"):
        ratio("f1", "micro")
    with pytest.raises(DataError, match="expected at least one clip, got none"):
        interval_of(counts.select(np.empty(0, int)))
    with pytest.raises(ArgumentError, match="only be compared on the same clips and classes"):
        compare(counts, counts.select(range(29)), F1)
    with pytest.raises(DataError, match="expected at least two clips to estimate their variance, got 1"):
        seed_variance([single, single], F1)
    with pytest.raises(DataError, match="expected at least two training runs to estimate their variance, got 1"):
        seed_variance([counts], F1)
    with pytest.raises(DataError, match="expected at least two training runs to estimate their variance, got 1"):
        compare_seeds([counts, counts], [counts], F1)
    with pytest.raises(DataError, match="the statistic is undefined for some seed"):
        seed_variance([one_class([0] * 5, [0] * 5, [0] * 5)] * 2, F1)


@pytest.mark.parametrize(
    ("scores", "names", "error", "message"),
    [
        (
            np.zeros(4),
            "abcd",
            DataError,
            r"expected scores \(blocks, methods\), at least two of each, got shape \(4,\)",
        ),
        (np.zeros((1, 4)), "abcd", DataError, r"at least two of each, got shape \(1, 4\)"),
        (np.full((3, 3), np.nan), "abc", DataError, "in all blocks, got NaN"),
        (np.zeros((3, 2)), "aa", ArgumentError, "expected 2 different names, one per method"),
    ],
)
def test_scores_that_cannot_be_ranked_are_refused(scores, names, error, message):
    with pytest.raises(error, match=message):
        friedman(scores, names)


@pytest.mark.parametrize("average", ["overall", "macro"])
def test_the_ratio_without_a_clip_is_that_of_the_others(rng, average):
    counts = some_counts(rng)
    for name in ("f1", "recall", "error_rate"):
        statistic = ratio(name, average)
        np.testing.assert_allclose(statistic.without_each(counts), statistic(counts, 1 - np.eye(30)), rtol=1e-9)
