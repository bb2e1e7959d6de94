"""Frame scores judged at every threshold: PSDS and curves of segments, equal to sed_scores_eval, psds_eval and more."""

import csv
import itertools
import math
import warnings

import numpy as np
import pytest

from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import curves, psds
from earmark.formats import read_labels

SCENARIOS = [
    psds.SCENARIO_1,
    psds.SCENARIO_2,
    psds.Scenario(0.5, 0.5, cttc=0.3, alpha_ct=1.0, max_efpr=5000.0),
    psds.Scenario(0.5, 0.3, alpha_st=1.0, max_efpr=20000.0),
]


@pytest.fixture(scope="module")
def oracle():
    return pytest.importorskip("sed_scores_eval")


def noisy(table, filename, frames, hop, rng):
    """Scores that know the truth, more or less, and waver: (frames, classes)."""
    truth = table.frame_targets(filename, frames, hop)
    walk = rng.normal(size=truth.shape).cumsum(0) * 0.15 + rng.normal(size=(1, truth.shape[1]))
    return 1 / (1 + np.exp(4 - 6 * truth * rng.random() - walk - 0.3 * rng.normal(size=truth.shape)))


def random_case(rng):
    """A reference and scores of a few short clips, some with few distinct scores, and the times of their frames."""
    labels = ("cat", "dog", "eel", "owl")[: rng.integers(2, 5)]
    hop = float(rng.choice([0.1, 0.064, 0.25, 0.02322]))
    lengths = {f"{i}.wav": int(rng.integers(4, 60)) for i in range(rng.integers(1, 5))}
    rows = []
    for i, (name, frames) in enumerate(lengths.items()):
        for label in labels:
            n = 2 * int(rng.integers(0 if i else 1, 4))
            grid = np.arange(1, 40) * frames * hop / 40
            times = rng.choice(grid, n, replace=False) if rng.random() < 0.5 else rng.uniform(0, frames * hop, n)
            rows += [(name, *pair, label) for pair in np.round(np.sort(times), 6).reshape(-1, 2).tolist()]
    table = LabelTable(rows, filenames=lengths, classes=labels)
    scores = {name: noisy(table, name, frames, hop, rng) for name, frames in lengths.items()}
    steps = rng.choice([4.0, 100.0, 1e9])
    return table, {name: np.round(own * steps) / steps for name, own in scores.items()}, hop


def for_oracle(oracle, table, scores, hop):
    """Scores, truth and durations as sed_scores_eval wants them."""
    make = oracle.base_modules.scores.create_score_dataframe
    frames = {name: make(own, np.arange(len(own) + 1) * hop, list(table.classes)) for name, own in scores.items()}
    truth = {name: [(row.onset, row.offset, row.label) for row in table.of(name)] for name in scores}
    return frames, truth, {name: len(own) * hop for name, own in scores.items()}


def assert_psds_equal(oracle, table, scores, hop, scenario):
    ours = psds.evaluate(table, scores, hop=hop, scenario=scenario)
    value, per_class, _, _ = oracle.intersection_based.psds(
        *for_oracle(oracle, table, scores, hop),
        dtc_threshold=scenario.dtc,
        gtc_threshold=scenario.gtc,
        cttc_threshold=scenario.cttc,
        alpha_ct=scenario.alpha_ct,
        alpha_st=scenario.alpha_st,
        max_efpr=scenario.max_efpr,
    )
    assert ours.value == pytest.approx(value, abs=1e-9)
    assert ours.per_class == pytest.approx(per_class, abs=1e-9)
    return ours


@pytest.mark.parametrize("scenario", SCENARIOS, ids=["first", "second", "crossed", "plain"])
def test_psds_of_random_cases_equals_sed_scores_eval(scenario, oracle, rng):
    values = [assert_psds_equal(oracle, *random_case(rng), scenario).value for _ in range(60)]
    assert len(set(values)) > 5


def desed(shared, rng, clips):
    folder = shared / "metrics" / "desed_student"
    with (folder / "validation_durations.tsv").open() as file:
        names = [row["filename"] for row in csv.DictReader(file, delimiter="\t")][:clips]
    whole = read_labels(folder / "validation.tsv")
    rows = [row for row in whole if row.filename in set(names)]
    joined = []  # sed_scores_eval refuses events that touch
    for row in sorted(rows, key=lambda row: (row.filename, row.label, row.onset)):
        if joined and joined[-1][::3] == row[:4:3] and row.onset <= joined[-1][2]:
            joined[-1] = (*joined[-1][:2], max(row.offset, joined[-1][2]), row.label)
        else:
            joined.append(row[:4])
    table = LabelTable(joined, filenames=names, classes=whole.classes)
    return table, {name: noisy(table, name, 156, 0.064, rng) for name in names}


def test_psds_of_desed_with_made_up_scores_equals_sed_scores_eval(shared, oracle, rng):
    table, scores = desed(shared, rng, 150)
    for scenario in (psds.SCENARIO_1, psds.SCENARIO_2):
        assert 0.05 < assert_psds_equal(oracle, table, scores, 0.064, scenario).value < 1


@pytest.mark.filterwarnings("ignore:DataFrame.fillna with 'method' is deprecated:FutureWarning")  # psds_eval does
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim > 0 to a scalar:DeprecationWarning")  # both
def test_psds_equals_psds_eval_with_every_threshold_as_operating_point(rng):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
        package = pytest.importorskip("psds_eval")
    pandas = pytest.importorskip("pandas")
    columns = ["filename", "onset", "offset", "event_label"]
    hop, frames, names = 0.25, 40, [f"{i}.wav" for i in range(5)]
    rows = [
        (name, *pair, label)
        for name, label in itertools.product(names, ("cat", "dog", "owl"))
        for pair in np.sort(rng.uniform(0, frames * hop, 4)).reshape(2, 2).tolist()
    ]
    table = LabelTable(rows)
    scores = {name: np.round(8 * noisy(table, name, frames, hop, rng)) / 8 for name in names}
    for scenario in (psds.SCENARIO_2, SCENARIOS[2]):
        other = package.PSDSEval(
            scenario.dtc,
            scenario.gtc,
            scenario.cttc,
            ground_truth=pandas.DataFrame(rows, columns=columns),
            metadata=pandas.DataFrame([(name, frames * hop) for name in names], columns=["filename", "duration"]),
        )
        for threshold in np.unique(np.concatenate(list(scores.values()))):
            found = []
            for name, c in itertools.product(names, range(3)):
                edges = np.flatnonzero(np.diff(scores[name][:, c] >= threshold, prepend=False, append=False))
                found += [(name, a * hop, b * hop, table.classes[c]) for a, b in edges.reshape(-1, 2)]
            other.add_operating_point(pandas.DataFrame(found, columns=columns))
        theirs = other.psds(scenario.alpha_ct, scenario.alpha_st, scenario.max_efpr).value
        assert psds.evaluate(table, scores, hop=hop, scenario=scenario).value == pytest.approx(theirs, abs=1e-9)


def test_detections_grow_merge_and_lose_what_they_outgrow():
    reference = [("a.wav", 0.0, 1.0, "dog"), ("a.wav", 2.0, 3.0, "dog")]
    table = [[0.9], [0.2], [0.8], [0.1], [0.1], [0.1]]
    levels, rows = psds._changes(
        psds._spans(np.array(table)[:, 0]),
        np.arange(7.0),
        np.array([[0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0]]),
        np.array([[0.0, 1.0], [2.0, 3.0]]),
        0,
        psds.Scenario(0.6, 0.9),
    )
    assert levels.tolist() == [0.9, 0.8, 0.1]  # at 0.2 both events are one detection, two thirds of it covered
    assert rows.tolist() == [[1, 0], [1, 0], [-2, 1]]
    result = psds.evaluate(reference, {"a.wav": table}, hop=1.0, scenario=psds.Scenario(0.6, 0.9))
    assert result.roc.tpr.tolist() == [1.0]


def test_frames_of_unequal_length_are_given_by_edges():
    reference = [("a.wav", 1.0, 3.0, "dog")]
    wide = {"a.wav": [[0.1], [0.9], [0.05]]}
    narrow = {"a.wav": [[0.1], [0.9], [0.9], [0.05]]}
    scenario = psds.Scenario(0.7, 0.7)
    edges = {"a.wav": [0.0, 1.0, 3.0, 4.0]}
    assert psds.evaluate(reference, wide, edges=edges, scenario=scenario).value == 1.0
    assert psds.evaluate(reference, narrow, hop=1.0, scenario=scenario).value == 1.0
    assert psds.evaluate(reference, wide, hop=1.0, scenario=scenario).value == 0.0
    unequal, equal = curves.curve(reference, wide, edges=edges), curves.curve(reference, narrow, hop=1.0)
    np.testing.assert_array_equal(unequal.level, equal.level)
    np.testing.assert_array_equal(unequal.fp, equal.fp)


def test_touching_reference_events_are_one():
    scores = {"a.wav": [[0.1], [0.9], [0.9], [0.1]]}
    one = psds.evaluate([("a.wav", 1.0, 3.0, "dog")], scores, hop=1.0)
    two = psds.evaluate([("a.wav", 2.0, 3.0, "dog"), ("a.wav", 1.0, 2.0, "dog")], scores, hop=1.0)
    assert two.value == one.value == 1.0


def test_classes_without_reference_are_left_out():
    reference = LabelTable([("a.wav", 1.0, 3.0, "dog")], classes=["cat", "dog"], filenames=["b.wav"])
    scores = {"a.wav": [[0.9, 0.1], [0.9, 0.9], [0.1, 0.9], [0.9, 0.1]], "b.wav": [[-math.inf, -math.inf]]}
    for scenario in SCENARIOS:
        result = psds.evaluate(reference, scores, hop=1.0, scenario=scenario)
        assert result.value == result.per_class["dog"] == 1.0
        assert math.isnan(result.per_class["cat"])
        assert result.rocs["cat"] is None
    cat, dog = (curves.curve(reference, scores, label, hop=1.0) for label in ("cat", "dog"))
    assert np.isnan([*cat.recall, *cat.f1]).all()
    assert dog.f1.max() == 1.0


def test_nothing_to_find_is_no_score():
    reference = LabelTable([], classes=["dog"], filenames=["a.wav"])
    assert math.isnan(psds.evaluate(reference, {"a.wav": [[0.5]]}, hop=1.0).value)
    assert np.isnan(curves.curve(reference, {"a.wav": [[0.5]]}, hop=1.0).f1).all()


def test_what_the_reference_does_not_know_is_left_out():
    known = LabelTable([("a.wav", 1.0, 2.0, "dog"), ("b.wav", 0.0, 1.0, "cat")], classes=["cat", "dog"])
    partly = LabelTable([*known, Label("b.wav", None, None, "dog")], classes=["cat", "dog"])
    scores = {"a.wav": [[0.1, 0.1], [0.2, 0.9], [0.3, 0.3]], "b.wav": [[0.9, 0.95], [0.1, 0.95], [0.1, 0.95]]}
    scenario = psds.Scenario(0.7, 0.7, max_efpr=3600.0)
    assert psds.evaluate(known, scores, hop=1.0, scenario=scenario).per_class["dog"] < 1
    assert psds.evaluate(partly, scores, hop=1.0, scenario=scenario).per_class["dog"] == 1.0
    label = known.classes[1]
    assert average_precision(curves.curve(known, scores, label, hop=1.0)) < 1
    assert average_precision(curves.curve(partly, scores, label, hop=1.0)) == 1


def average_precision(curve):
    return np.sum(np.diff(curve.recall) * curve.precision[1:])


def test_curves_of_random_cases_equal_sed_scores_eval(oracle, rng):
    compared = 0
    for _ in range(80):
        table, scores, hop = random_case(rng)
        segment = float(rng.choice([1.0, 0.5, 0.3]))
        given = for_oracle(oracle, table, scores, hop)
        if any(math.ceil(d / segment) != math.ceil(d / segment - 1e-6) for d in given[2].values()):
            continue  # the first difference in the docstring
        average, _ = oracle.segment_based.average_precision(*given, segment_length=segment)
        every = oracle.segment_based.fscore_curve(*given, segment_length=segment)
        for label in table.classes:
            one, theirs = curves.curve(table, scores, label, hop=hop, segment=segment), every[label]
            np.testing.assert_array_equal(one.level[::-1], theirs[3])
            for ours, their in ((one.f1, theirs[0]), (one.precision, theirs[1]), (one.recall, theirs[2])):
                np.testing.assert_allclose(ours[::-1], their, rtol=1e-12)
            assert average_precision(one) == pytest.approx(average[label], rel=1e-12)
            compared += 1
    assert compared > 50


def test_one_threshold_for_all_classes_equals_sed_scores_eval(oracle, rng):
    for _ in range(10):
        table, scores, hop = random_case(rng)
        given = for_oracle(oracle, table, scores, hop)
        for threshold in (0.123456, 0.3, 0.56789):
            f1, *_ = oracle.segment_based.fscore(*given, threshold - 1e-9, segment_length=0.7)
            for label, name in ((None, "micro_average"), *zip(table.classes, table.classes, strict=True)):
                one = curves.curve(table, scores, label, hop=hop, segment=0.7)
                assert one.f1[one.at(threshold)] == pytest.approx(f1[name], abs=1e-12)


def test_segments_no_frame_reaches_are_never_called_active():
    one = curves.curve([("a.wav", 2.0, 3.0, "dog")], {"a.wav": [[0.5]]}, "dog", hop=1.0, durations={"a.wav": 3.0})
    assert (one.level.tolist(), one.fp.tolist(), one.n_ref) == ([math.inf, 0.5], [0, 1], 1)
    assert one.f1.max() == 0


def test_durations_that_divide_are_not_rounded_up():
    one = curves.curve([("a.wav", 0.0, 0.1, "dog")], {"a.wav": [[0.5]] * 11}, hop=0.1, segment=0.1)
    assert one.tp[-1] + one.fp[-1] == 11


REFERENCE = [("a.wav", 0.0, 1.0, "dog")]
SCORES = {"a.wav": [[0.5], [0.1]]}


@pytest.mark.parametrize("judge", [psds.evaluate, curves.curve])
@pytest.mark.parametrize(
    ("scores", "options", "error", "message"),
    [
        (SCORES, {}, ArgumentError, "expected the times of frames either as hop or as edges"),
        (SCORES, {"hop": 1.0, "edges": {"a.wav": [0, 1, 2]}}, ArgumentError, "expected the times of frames"),
        (SCORES, {"hop": 0}, ArgumentError, "expected a hop above 0 s, got 0"),
        (
            SCORES,
            {"hop": 1, "classes": ["dgo"]},
            ArgumentError,
            "reference label='dog' is not known; did you mean 'dgo'",
        ),
        ({}, {"hop": 1}, DataError, "expected scores of at least one file"),
        ({"b.wav": [[0.5]]}, {"hop": 1}, DataError, "a.wav: in the reference but without scores"),
        (SCORES, {"edges": {}}, DataError, "a.wav: has scores but no edges"),
        (SCORES, {"hop": 1, "durations": {"b.wav": 1}}, DataError, "a.wav: has scores but no duration"),
        (SCORES, {"hop": 1, "durations": {"a.wav": 0}}, DataError, "a.wav: expected a duration above 0 s, got 0"),
        ({"a.wav": [0.5]}, {"hop": 1}, DataError, r"a.wav: expected scores \(frames, 1 classes\), got shape \(1,\)"),
        ({"a.wav": [[math.nan]]}, {"hop": 1}, DataError, "a.wav: a score is NaN or infinite"),
        ({"a.wav": [[math.inf]]}, {"hop": 1}, DataError, "a.wav: a score is NaN or infinite; only -inf is allowed"),
        (SCORES, {"hop": 1, "classes": ["dog", "dog"]}, ArgumentError, "a class is named twice in classes: dog, dog"),
        (SCORES, {"edges": {"a.wav": [0, 1]}}, DataError, r"a.wav: expected 3 edges for 2 frames, got shape \(2,\)"),
        (
            SCORES,
            {"edges": {"a.wav": [0, 1, 1]}},
            DataError,
            "a.wav: expected edges of frames that are finite, increasing",
        ),
    ],
)
def test_scores_that_do_not_fit(judge, scores, options, error, message):
    with pytest.raises(error, match=message):
        judge(REFERENCE, scores, **options)


def test_no_classes_at_all():
    with pytest.raises(DataError, match="the reference has no classes; name the columns"):
        curves.curve([], {"a.wav": [[0.5]]}, hop=1.0)


def test_events_without_length_cannot_be_covered():
    with pytest.raises(DataError, match=r"a.wav: 'dog' at 0.5 s has length 0 and cannot be covered"):
        psds.evaluate([("a.wav", 0.5, 0.5, "dog")], SCORES, hop=1.0)


def test_settings_that_mean_nothing():
    with pytest.raises(ArgumentError, match="expected a segment length above 0 s, got 0"):
        curves.curve(REFERENCE, SCORES, hop=1.0, segment=0)
    with pytest.raises(ArgumentError, match=r"label='dgo' is not known; did you mean 'dog'"):
        curves.curve(REFERENCE, SCORES, "dgo", hop=1.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtc": 0.0}, "dtc: expected a number above 0 and at most 1, got 0.0"),
        ({"cttc": 70, "alpha_ct": 1.0}, "cttc: expected a number above 0 and at most 1, or none, got 70"),
        ({"alpha_st": -1.0}, "alpha_st: expected a number of at least 0, got -1.0"),
        ({"alpha_ct": 0.5}, "cttc and alpha_ct must be given together, got cttc=None, alpha_ct=0.5"),
        ({"cttc": 0.3}, "cttc and alpha_ct must be given together, got cttc=0.3, alpha_ct=0.0"),
        ({"max_efpr": 0.0}, "max_efpr: expected a number above 0, got 0.0"),
        ({"max_efpr": math.inf}, "max_efpr: expected a finite number above 0, got inf"),
    ],
)
def test_scenarios_that_mean_nothing(settings, message):
    with pytest.raises(ArgumentError, match=message):
        psds.Scenario(**{"dtc": 0.7, "gtc": 0.7, **settings})
