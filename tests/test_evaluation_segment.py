"""Segments judged: equal to sed_eval to the last digit, on its own data and on random cases of every odd kind."""

import csv
import gzip
import math
import re

import numpy as np
import pytest
from reference import sed_eval
from reference import segment as slow

from earmark.annotations import LabelTable
from earmark.counts import ratios
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import segment
from earmark.evaluation.authors import authors_reference
from earmark.formats import read_labels, write_labels

LABELS = ["siren", "dog", "car", "horn", "drill", "bird", "rain", "bell"]


@pytest.fixture(scope="module")
def oracle():
    return sed_eval.metrics_class("SegmentBasedMetrics")


def judged_by(oracle, reference, estimate, classes, length, durations=None, filenames=None):
    """What sed_eval says about rows; without names, about the files that the rows have."""
    names = dict.fromkeys(row[0] for row in [*reference, *estimate]) if filenames is None else filenames
    metrics = oracle(list(classes), time_resolution=float(length))
    return sed_eval.results(metrics, reference, estimate, names, durations)


def assert_equal(ours, theirs):
    sed_eval.assert_equal(ours, theirs, ["f_measure", "error_rate", "accuracy"])
    for label, line in theirs["class_wise"].items():
        assert ours.per_class[label].n_ref == line["count"]["Nref"]
        assert ours.per_class[label].n_est == line["count"]["Nsys"]


def random_rows(rng, names, labels, n):
    """Events in any order: overlapping, of no length, on the grid, beside it by float noise, or anywhere."""
    rows = []
    for _ in range(n):
        times = rng.uniform(0, 4, 2)
        kind = rng.integers(4)
        if kind == 1:
            times = rng.integers(0, 40, 2) * 0.1
        elif kind == 2:
            times = rng.integers(0, 8, 2) / 2
        onset, offset = sorted(float(t) for t in times)
        if rng.random() < 0.15:
            offset = onset
        elif kind == 3:
            offset = onset + 0.1 * float(rng.integers(5))
        rows.append((str(rng.choice(names)), onset, offset, str(rng.choice(labels))))
    return rows


def random_case(seed):
    """Reference, estimate, file names, classes and durations (or None): each file in both, in one or in none."""
    rng = np.random.default_rng(seed)
    names = [f"{k}.wav" for k in range(rng.integers(1, 4))]
    labels = LABELS[: rng.integers(1, 9)]
    sides = [random_rows(rng, names[: rng.integers(1, 4)], labels, rng.integers(0, 7)) for _ in range(2)]
    durations = {name: float(rng.choice([0.0, 0.3, 1.1, 2.5, 5.0])) for name in names} if rng.random() < 0.4 else None
    return *sides, names, labels, durations


@pytest.mark.parametrize("length", [0.1, 0.5, 1.0, 2.0])
def test_random_cases_equal_sed_eval(length, oracle):
    for seed in range(100):
        reference, estimate, names, labels, durations = random_case(seed)
        table = LabelTable(reference, filenames=names)
        ours = segment.evaluate(
            table, estimate, segment=length, classes=labels, durations=durations, convention="sed_eval"
        )
        assert_equal(ours, judged_by(oracle, reference, estimate, labels, length, durations, names))


@pytest.mark.parametrize("length", [0.1, 0.3, 1.0, 7.0])
def test_counts_of_every_clip_equal_the_slow_reference(length):
    for seed in range(100):
        reference, estimate, names, labels, durations = random_case(seed)
        table = LabelTable(reference, filenames=names)
        ours = segment.counts(table, estimate, segment=length, classes=labels, durations=durations)
        clips = slow.counts(reference, estimate, ours.filenames, labels, length, durations)
        for k, (*by_class, subs, dels, ins) in enumerate(clips):
            for part, own in zip(by_class, (ours.tp, ours.fp, ours.fn, ours.tn), strict=True):
                assert own[k].tolist() == list(part.values())
            assert (ours.substitutions[k], ours.deletions[k], ours.insertions[k]) == (subs, dels, ins)


def test_street_fold_1_has_the_published_scores(shared, oracle):
    folder = shared / "metrics" / "sed_eval"
    pair = [folder / f"street_fold1_{side}.txt" for side in ("reference", "detected")]
    ours = segment.evaluate(*pair)
    published = {"error_rate": 1.0616698, "f1": 0.3101482, "precision": 0.3885714, "recall": 0.2580645}
    for name, value in published.items():
        assert getattr(ours.overall, name) == pytest.approx(value, abs=5e-8)
    assert ours.overall.accuracy == pytest.approx(0.8424479, abs=5e-8)
    reference, estimate = map(read_labels, pair)
    for length in (0.1, 0.5, 1.0, 2.0):
        ours = segment.evaluate(*pair, segment=length, convention="sed_eval")
        assert_equal(ours, judged_by(oracle, reference, estimate, reference.classes, length))


@pytest.mark.parametrize(
    ("true", "said"),
    [
        ("office_snr0_high_v2", "office_snr0_high_v2_detected"),
        ("mini_reference", "mini_detected_a"),
        ("binary1", "binary1_detected"),
    ],
)
def test_pairs_that_sed_eval_is_tested_with(true, said, shared, oracle):
    folder = shared / "metrics" / "sed_eval"
    reference = read_labels(folder / f"{true}.txt")
    estimate = read_labels(folder / f"{said}.txt").renamed({said: true})
    for length in (0.1, 1.0):
        ours = segment.evaluate(reference, estimate, segment=length, convention="sed_eval")
        assert_equal(ours, judged_by(oracle, reference, estimate, reference.classes, length))


def test_desed_has_the_scores_of_the_printed_report(shared, oracle):
    folder = shared / "metrics" / "desed_student"
    pair = folder / "validation.tsv", folder / "predictions0.5.csv"
    ours = segment.evaluate(*pair, convention="sed_eval")
    report = (folder / "segment_f1.txt").read_text()
    overall, macro = (
        report.split("Class-wise average")[0],
        report.split("Class-wise average")[1].split("Class-wise m")[0],
    )
    for own, text in ((ours.overall, overall), (ours.macro, macro)):
        for name, said in (("f1", r"F-measure \(F1\)"), ("precision", "Precision"), ("accuracy", " Accuracy  ")):
            assert f"{100 * getattr(own, name):.2f}" == re.search(rf"{said} *: ([\d.]+) %", text)[1]
        assert f"{own.error_rate:.2f}" == re.search(r"Error rate \(ER\) *: ([\d.]+)", text)[1]
    reference, estimate = map(read_labels, pair)
    assert_equal(ours, judged_by(oracle, reference, estimate, reference.classes, 1.0, filenames=reference.filenames))


def test_desed_with_durations_equals_sed_eval(shared, oracle):
    folder = shared / "metrics" / "desed_student"
    with (folder / "validation_durations.tsv").open() as file:
        durations = {row["filename"]: float(row["duration"]) for row in csv.DictReader(file, delimiter="\t")}
    reference, estimate = read_labels(folder / "validation.tsv"), read_labels(folder / "predictions0.5.csv")
    ours = segment.evaluate(reference, estimate, durations=durations, convention="sed_eval")
    assert_equal(ours, judged_by(oracle, reference, estimate, reference.classes, 1.0, durations, durations))


def test_float_noise_is_that_of_sed_eval():
    noisy = 0.1 + 0.2  # 0.30000000000000004
    found = segment.counts([("a", 0, noisy, "dog"), ("b", 0, 0.3, "dog"), ("c", 0.7, 0.8, "dog")], [], segment=0.1)
    assert found.n_ref.ravel().tolist() == [4, 3, 2]


def test_labels_may_be_in_files(tmp_path):
    table = LabelTable([("a.wav", 0.0, 1.0, "dog"), ("b.wav", 1.0, 2.0, "cat")])
    path = tmp_path / "labels.tsv"
    write_labels(table, path, "tsv")
    assert repr(segment.evaluate(path, str(path))) == repr(segment.evaluate(table, table))  # in which NaN is NaN


def test_an_estimate_that_the_reference_knows_nothing_of_is_an_error_or_a_false_alarm():
    reference = [("a.wav", 0, 1, "dog")]
    with pytest.raises(DataError, match=r"the estimate has 4 files \('1', '2', '3', ...\) that the reference does not"):
        segment.evaluate(reference, [(str(k), 0, 1, "dog") for k in range(1, 5)])
    with pytest.raises(DataError, match=r"the estimate has 1 label \('dgo'\) outside the classes to evaluate \(dog\)"):
        segment.evaluate(reference, [("a.wav", 0, 1, "dgo")])
    found = segment.counts(reference, [("b.wav", 0, 2, "dog"), ("a.wav", 0, 1, "cat")], missing="empty")
    assert (found.filenames, found.classes) == (("a.wav", "b.wav"), ("dog", "cat"))
    assert found.fp.tolist() == [[0, 1], [2, 0]]
    assert found.fn.tolist() == [[1, 0], [0, 0]]


def test_classes_that_are_named_are_all_there_is():
    with pytest.raises(DataError, match=r"the reference has 1 label \('cat'\) outside the classes to evaluate \(dog\)"):
        segment.evaluate([("a.wav", 0, 1, "cat")], [], classes=["dog"])
    assert list(segment.evaluate([], [], classes=["dog", "cat"]).per_class) == ["dog", "cat"]


def test_clips_of_durations_are_judged_too():
    found = segment.counts([("a", 0, 5, "dog")], [("b", 1, 2, "dog")], durations={"a": 3.0, "b": 2.5})
    assert found.fn.tolist() == [[3], [0]]
    assert found.fp.tolist() == [[0], [1]]
    assert found.tn.tolist() == [[0], [2]]


def test_what_nobody_knows_is_left_out():
    rows = [
        ("a", 0, 1, "dog"),
        ("a", None, None, "cat"),
        ("b", None, None, "dog", None),
        ("b", None, None, "cat", False),
    ]
    estimate = [("a", 0, 2, "cat"), ("a", 0, 1, "dog"), ("b", 0, 3, "dog"), ("b", 0, 1, "cat")]
    found = segment.counts(rows, estimate, durations={"a": 4, "b": 4})
    assert found.classes == ("cat", "dog")
    assert found.tp.tolist() == [[0, 1], [0, 0]]
    assert found.fp.tolist() == [[0, 0], [1, 0]]
    assert found.tn.tolist() == [[0, 3], [3, 0]]
    assert found.insertions.tolist() == [0, 1]


def test_silence_of_an_incomplete_reference_means_nothing():
    reference = LabelTable([("a", 0, 1, "dog"), ("b", 0, 1, "cat")], complete=False)
    found = segment.counts(reference, [("a", 0, 1, "cat"), ("b", 0, 2, "cat")])
    assert found.fp.tolist() == [[0, 0], [1, 0]]
    assert found.fn.tolist() == [[0, 1], [0, 0]]


def test_a_day_in_short_segments():
    day = 86400.0
    found = segment.counts([("a", 0, day / 2, "dog")], [("a", day / 4, day, "dog")], segment=0.01)
    assert found.tp.item() == 2_160_000
    assert found.substitutions.item() == found.deletions.item() - 2_160_000 == found.insertions.item() - 4_320_000 == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"segment": 0}, r"expected a segment length above 0 s, got 0"),
        ({"segment": math.inf}, r"above 0 s, got inf"),
        ({"segment": 1e-300}, r"expected a segment length of at least 0.001 s, got 1e-300"),
        ({"durations": {"b": 1.0}}, r"expected durations of 2 clips, got none for 1, such as 'a'"),
        ({"durations": {"a": math.nan}}, r"'a': expected a duration in seconds, got nan"),
        ({"missing": "drop"}, r"missing='drop' is not known. Choose from: error, empty"),
        ({"convention": "sklearn"}, r"convention='sklearn' is not known. Choose from: plain, sed_eval"),
    ],
)
def test_calls_that_mean_nothing(options, message):
    with pytest.raises(ArgumentError, match=message):
        segment.evaluate([("a", 0, 1, "dog")], [], **options)


@pytest.mark.parametrize("present", [True, None])
def test_an_estimate_must_say_when(present):
    with pytest.raises(DataError, match="the estimate says that 'dog' is in 'a', but not when"):
        segment.evaluate([("a", 0, 1, "dog")], [("a", None, None, "dog", present)])


def test_a_class_never_found_is_forgiven_by_sed_eval_and_not_by_the_plain_convention():
    reference = [("a", 0, 1, "dog"), ("a", 0, 1, "cat")]
    estimate = [("a", 0, 1, "dog"), ("a", 0, 1, "bird")]
    plain = segment.evaluate(reference, estimate, missing="empty")
    theirs = segment.evaluate(reference, estimate, missing="empty", convention="sed_eval")
    assert theirs.macro.f1 == 1.0
    assert theirs.per_class["bird"].error_rate > 1e15
    assert plain.macro.f1 == pytest.approx(1 / 3)
    assert math.isnan(plain.per_class["bird"].error_rate)
    assert plain.macro.error_rate == pytest.approx(1 / 2)
    assert plain.overall.f1 == theirs.overall.f1 == 0.5


def test_resampled_clips_are_weights():
    reference, estimate, names, labels, _ = random_case(11)
    counts = segment.counts(LabelTable(reference, filenames=names), estimate, classes=labels)
    drawn = np.array([[0, 0, 2], [1, 2, 2]]) % len(names)
    weights = np.stack([np.bincount(row, minlength=len(names)) for row in drawn])
    drawn_scores = ratios(counts, weights)
    assert drawn_scores["per_class"]["f1"].shape == (2, len(labels))
    for k, row in enumerate(drawn):
        scores = segment.scores(counts.select(row))
        assert counts.select(row).filenames == tuple(names[i] for i in row)
        for part in ("overall", "macro"):
            np.testing.assert_equal(drawn_scores[part]["f1"][k], getattr(scores, part).f1)
            np.testing.assert_equal(drawn_scores[part]["error_rate"][k], getattr(scores, part).error_rate)
    with pytest.raises(ArgumentError, match=r"expected weights of shape \(..., \d\), one per clip, got \(7,\)"):
        ratios(counts, np.ones(7))


def test_scores_become_dictionaries():
    plain = segment.evaluate([("a", 0, 1, "dog")], [("a", 0, 1, "dog")]).to_dict()
    assert plain["per_class"]["dog"]["f1"] == plain["overall"]["f1"] == 1.0


def test_the_reference_of_table_1_has_events_of_other_clips(shared):
    with gzip.open(shared / "urbansed" / "events.csv.gz", "rt") as file:
        clean = LabelTable(
            (row["clip"], float(row["time"]), float(row["time"]) + float(row["dur"]), row["label"])
            for row in csv.DictReader(file)
            if row["split"] == "test"
        )
    theirs = authors_reference(clean)
    assert theirs.filenames == clean.filenames
    assert sum(theirs.of(name) != clean.of(name) for name in clean.filenames) == 198
    perfect = segment.evaluate(theirs, clean, durations=dict.fromkeys(clean.filenames, 10.0))
    lines = {label: (line.n_ref, line.n_est) for label, line in perfect.per_class.items()}
    assert lines["air_conditioner"] == (3926, 2685)
    assert lines["car_horn"] == (3315, 2144)
    assert perfect.overall.precision == 1.0
    assert perfect.overall.recall == pytest.approx(0.684, abs=5e-4)
    assert perfect.overall.f1 == pytest.approx(0.812, abs=5e-4)
