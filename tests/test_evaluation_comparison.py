"""Runs compared: never better where the data do not say so, and nothing compared that cannot be."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_evaluation_result import evaluated

from earmark.counts import Counts
from earmark.errors import ArgumentError, DataError
from earmark.evaluation.comparison import compare_entries
from earmark.evaluation.result import Evaluation
from earmark.evaluation.systems import System, group_runs
from earmark.events import Decoder
from earmark.files import json_text
from earmark.settings import load_recipe

CLIPS, CLASSES = 300, ("cat", "dog")


def segments(rng, skill):
    """Counts of clips with ten segments; `skill` is the share of active ones that are found."""
    active = np.random.default_rng(7).binomial(10, 0.4, (CLIPS, 2))  # the same reference for all
    tp = rng.binomial(active, skill)
    fp = rng.binomial(10 - active, 0.1)
    fn, alarms, misses = active - tp, fp.sum(1), (active - tp).sum(1)
    swapped = np.minimum(alarms, misses)
    names = tuple(map(str, range(CLIPS)))
    return Counts(names, CLASSES, tp, fp, fn, 10 - active - fp, swapped, misses - swapped, alarms - swapped)


def saved(counts, folder="run", **about):
    scores = {"segment": 1.0, "convention": "plain", "reference_fingerprint": "f", "decoder": {"threshold": 0.5}}
    return Evaluation({**scores, **about}, counts, dynamic_counts=counts, _folder=Path(folder))


def entry(name, rng, *skills, **about):
    return System(name, tuple(saved(segments(rng, skill), f"{name}-{i}", **about) for i, skill in enumerate(skills)))


def test_models_that_differ_only_by_chance_are_not_told_apart(rng):
    comparison = compare_entries([entry("max", rng, 0.6), entry("rap", rng, 0.6)])
    assert len(comparison.tied) == 1
    assert comparison.lines[0].startswith("No difference: the data do not say which is best by F1 of segments")
    assert "are not distinguishable" in comparison.verdicts[0].text
    assert not any("better" in line for line in comparison.lines)
    assert "trained once: max, rap" in comparison.notes[0]


def test_what_is_clearly_better_is_called_better(rng):
    comparison = compare_entries([entry("max", rng, 0.6), entry("rap", rng, 0.75), entry("auto", rng, 0.745)])
    assert comparison.best in ("rap", "auto")
    assert set(comparison.tied) == {"rap", "auto"} - {comparison.best}
    assert comparison.lines[0].startswith(f"Best by F1 of segments: {comparison.best}; not distinguishable from it: ")
    (told,) = [v for v in comparison.verdicts if "max" in v.names]
    assert told.text.startswith(f"{comparison.best} is better than max: F1 of segments")
    value = comparison.values["rap"]["dynamic.f1"]
    assert value.low < value.value < value.high
    assert "static.pooled.f1" not in comparison.values["rap"]
    assert "dynamic.macro.error_rate" in comparison.values["rap"]
    alone = compare_entries([entry("max", rng, 0.6), entry("rap", rng, 0.75)])
    assert alone.lines[0] == "Best by F1 of segments: rap; it is better than the other"


def test_a_comparison_is_shown_as_a_table(rng):
    comparison = compare_entries([entry("max", rng, 0.6), entry("<rap>", rng, 0.75)])
    lines = str(comparison).splitlines()
    assert lines[0] == "300 clips, segments of 1 s"
    f1 = comparison.values["max"]["dynamic.f1"]
    (row,) = [line for line in lines if line.startswith("max ")]
    assert f"{f1.value:.3f}".removeprefix("0") in row.split()
    assert f"max: {f1.value:.3f}, 95% interval {f1.low:.3f} to {f1.high:.3f}".replace(" 0.", " .") in lines
    assert comparison.lines[0] in lines
    assert "&lt;rap&gt;" in comparison._repr_html_()
    assert "<rap>" not in comparison._repr_html_()
    frame = comparison.to_pandas()
    assert frame.index.tolist() == ["max", "<rap>"]
    assert frame.loc["max", ["dynamic.f1", "dynamic.f1.low", "dynamic.f1.high"]].tolist() == list(f1)


def test_luck_in_training_is_not_taken_for_merit(rng):
    """Each pair of runs differs clearly, but so do the seeds of one system."""
    lucky, unlucky = entry("lucky", rng, 0.60, 0.72, 0.66), entry("unlucky", rng, 0.58, 0.69, 0.63)
    one, other = (System(name, own.evaluations[k : k + 1]) for name, own, k in (("a", lucky, 1), ("b", unlucky, 0)))
    assert compare_entries([one, other]).verdicts[0].is_different
    comparison = compare_entries([lucky, unlucky])
    assert comparison.tied == ("unlucky",)
    assert comparison.verdicts[0].basis == "300 clips, 3 and 3 seeds"
    assert "lucky: 3 seeds, F1 of segments" in comparison.lines[0]
    assert comparison.notes == ()
    mixed = compare_entries([lucky, other])
    assert mixed.tied == ("b",)
    assert mixed.verdicts[0].basis == "300 clips, 3 and 1 seeds"
    far = compare_entries([lucky, entry("far", rng, 0.05)])
    assert far.verdicts[0].better == "lucky"
    alike = compare_entries([entry("alike", rng, 0.60, 0.60), entry("once", rng, 0.68)])
    assert alike.tied == ("alike",)  # two seeds that agree do not say that a third would


def test_runs_that_differ_only_by_seed_are_no_difference(rng):
    comparison = compare_entries([entry("rap", rng, 0.6, 0.62)])
    assert comparison.lines[0].startswith("rap: 2 seeds, F1 of segments ")
    assert comparison.verdicts == ()
    assert (comparison.best, comparison.tied) == ("rap", ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"segment": 0.1}, r"a and b cannot be compared: evaluated with segments of 1 s and of 0.1 s"),
        ({"convention": "sed_eval"}, "evaluated by the convention plain and by the convention sed_eval"),
        ({"reference_fingerprint": "g"}, "evaluated against different references, both called data, which changed"),
        ({"reference_fingerprint": "g", "reference": "authors"}, "different references, data and authors"),
    ],
)
def test_what_was_evaluated_otherwise_is_not_compared(change, message, rng):
    one, other = saved(segments(rng, 0.6), "a"), saved(segments(rng, 0.6), "b", **change)
    with pytest.raises(ArgumentError, match=message):
        compare_entries([System("a", (one,)), System("b", (other,))])


def test_other_clips_and_classes_are_not_compared(rng):
    counts = segments(rng, 0.6)
    one, fewer = saved(counts, "a"), saved(counts.select(range(200)), "b")
    with pytest.raises(
        ArgumentError, match="evaluated on different clips, 300 and 200, of which only one has 200, 201"
    ):
        compare_entries([System("a", (one,)), System("b", (fewer,))])
    parts = vars(counts)
    for classes, message in ((("cat", "owl"), "different classes; only one has dog, owl"), (("dog", "cat"), "order")):
        with pytest.raises(ArgumentError, match=message):
            compare_entries([System("a", (one,)), System("b", (saved(Counts(**{**parts, "classes": classes}), "b"),))])
    with pytest.raises(ArgumentError, match="two systems are called 'a'"):
        compare_entries([System("a", (one,)), System("a", (one,))])
    with pytest.raises(ArgumentError, match="expected at least one system to compare"):
        compare_entries([])


def test_decoders_that_differ_are_mentioned(rng):
    tuned = {"decoder": {"threshold": [0.3, 0.4], "tuned_on": "validate"}}
    comparison = compare_entries([entry("a", rng, 0.6), entry("b", rng, 0.6, **tuned)])
    assert "decoded with different settings: a: threshold 0.5; b: threshold tuned" in comparison.notes[1]


def test_a_ratio_without_divisor_is_nan_and_no_error(rng):
    comparison = compare_entries([entry("none", rng, 0.0, 0.0), entry("some", rng, 0.6, 0.6)])
    assert comparison.best == "some"
    silent = [saved(Counts(**{**vars(segments(rng, 0.0)), "fp": np.zeros((CLIPS, 2), int)})) for _ in range(2)]
    value = compare_entries([System("silent", tuple(silent))]).values["silent"]["dynamic.precision"]
    assert math.isnan(value.value)
    json_text(comparison.to_dict())


@pytest.mark.parametrize("times", [2, 1])
def test_seeds_judged_on_one_clip_with_events_are_tied(times, rng):
    """Without that clip there is no score, so nobody knows how much of a difference is luck."""

    def few(skill):
        counts = segments(rng, skill).select([0, 1, 2])
        return replace(counts, **{name: vars(counts)[name] * [[1], [0], [0]] for name in ("tp", "fp", "fn")})

    one, other = (
        System(name, tuple(saved(few(skill)) for _ in range(n)))
        for name, skill, n in (("a", 1.0, 2), ("b", 0.1, times))
    )
    comparison = compare_entries([one, other])
    assert comparison.tied == ("b",)
    assert comparison.verdicts[0].text.endswith(f"(3 clips, 2 and {times} seeds: too few to decide)")
    assert comparison.verdicts[0].scores[0] > comparison.verdicts[0].scores[1]
    json_text(comparison.to_dict())


@pytest.fixture
def runs(tmp_path, rng):
    """Four runs judged on the same clips: one pool twice by seed, once with another option, and another pool."""
    evaluation = evaluated(rng)
    changes = {
        "a": {"pool": "rap", "seed": "0"},
        "b": {"pool": "rap", "seed": "1"},
        "c": {"pool": "rap", "penalty": "0.01"},
        "d": {"pool": "max", "supervision": "strong"},
    }
    for name, change in changes.items():
        replace(evaluation, scores={**evaluation.scores, "align": "middle"}).save(tmp_path / name)
        (tmp_path / name / "config.toml").write_text(load_recipe("quick").changed(change).to_toml())
    evaluation.save(tmp_path / "e")
    return [tmp_path / name for name in "abcde"]


def test_runs_are_grouped_by_what_they_were_told(runs):
    entries = group_runs([*runs, runs[0]])
    found = {entry.name: [own.folder.name for own in entry.evaluations] for entry in entries}
    assert found == {"rap": ["a", "b"], "rap penalty 0.01": ["c"], "strong": ["d"], "e": ["e"]}
    assert [entry.name for entry in group_runs(runs[:2])] == ["rap"]
    text = (runs[1] / "config.toml").read_text()
    assert "alpha_rate = 1.0\n" in text
    (runs[1] / "config.toml").write_text(text.replace("alpha_rate = 1.0\n", ""))  # of a version that did not have it
    assert [entry.name for entry in group_runs(runs[:2])] == ["rap"]
    (runs[1] / "config.toml").write_text(text.replace("alpha_rate", "newer"))  # of a version that will
    assert [entry.name for entry in group_runs(runs[:2])] == ["rap alpha rate 1", "rap newer 1"]
    for number, run in enumerate(runs[:2]):
        (run / "config.toml").write_text(f"[training]\nnewer = {number}\n")  # the pool is unknown
    assert [entry.name for entry in group_runs(runs[:2])] == ["a", "b"]
    for run in runs[:2]:
        (run / "config.toml").write_text(text)
    comparison = compare_entries(entries)
    assert len(comparison.tied) == 3  # they are all the same
    assert "the numbers are rough: only 6 clips were evaluated" in comparison.notes[-1]
    (runs[0] / "config.toml").write_text("[training")
    with pytest.raises(DataError, match=r"config.toml: not TOML"):
        group_runs(runs)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ([{"pool": "rap"}, {"pool": "max"}], ["rap", "max"]),
        ([{"pool": "rap", "penalty": "0.001"}, {"pool": "max"}], ["rap", "max"]),
        ([{"pool": "rap", "epochs": "5"}, {"pool": "max"}], ["rap epochs 5", "max epochs 40"]),
        ([{"balanced": "true"}, {"balanced": "false"}], ["rap balanced", "rap"]),
        ([{"semitones": "[1, -1]"}, {}], ["rap semitones [1, -1]", "rap"]),
        ([{"network": "crnn"}, {"width": "0.25"}, {}], ["rap crnn", "rap cnn width 0.25", "rap cnn width 0.5"]),
        ([{"start": "runs/first/model.safetensors"}, {}], ["0", "1"]),
        ([{"save_minutes": "1", "tensorboard": "true"}, {"seed": "9"}], ["rap"]),
    ],
)
def test_systems_are_called_by_what_was_set_otherwise(changes, names, rng, tmp_path):
    evaluation = evaluated(rng)
    for i, change in enumerate(changes):
        replace(evaluation, scores={**evaluation.scores, "align": "middle"}).save(tmp_path / str(i))
        told = {"pool": "rap", "epochs": "40", "width": "0.5", **change}
        (tmp_path / str(i) / "config.toml").write_text(load_recipe("quick").changed(told).to_toml())
    assert [entry.name for entry in group_runs(tmp_path / str(i) for i in range(len(changes)))] == names


def test_systems_that_differ_in_many_settings_are_called_by_their_folders(rng, tmp_path):
    runs = {
        "a": ("paper", {}),
        "b": ("quick", {"epochs": "20", "penalty": "0.01"}),
        "c": ("quick", {}),
        "d": ("small", {}),
        "e": ("small", {"seed": "7"}),
    }
    for name, (recipe, changes) in runs.items():
        evaluated(rng).save(tmp_path / name)
        (tmp_path / name / "config.toml").write_text(load_recipe(recipe).changed(changes).to_toml())
    names = [entry.name for entry in group_runs(tmp_path / name for name in runs)]
    assert names == ["a", "b", "c", "d and 1 more"]


def test_a_threshold_is_named_where_it_differs(tmp_path):
    for name, decoder in (("a", Decoder(threshold=0.3)), ("b", Decoder(median=0.5))):
        evaluation = evaluated(np.random.default_rng(0))
        evaluation.scores["decoder"] = decoder.to_dict()
        evaluation.save(tmp_path / name)
        (tmp_path / name / "config.toml").write_text(load_recipe("quick").changed({"pool": "rap"}).to_toml())
    entries = group_runs([tmp_path / "a", tmp_path / "b"])
    assert [entry.name for entry in entries] == ["rap threshold 0.3", "rap threshold 0.5 median 0.5"]
