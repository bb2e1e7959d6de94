"""Evaluations as results and on disk: loaded as saved, refused if damaged, shown as tables."""

import math

import numpy as np
import pytest

import earmark
from earmark.annotations import LabelTable
from earmark.counts import scores
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import Evaluation, EvaluationOptions, evaluate_events, evaluate_scores, result
from earmark.files import json_text
from earmark.inference.scores import RecordingScores


def evaluated(rng, clips=6, **about):
    """An evaluation of random probabilities."""
    recordings = []
    for i in range(clips):
        n = int(rng.integers(5, 30))
        p = rng.random((n, 2)).astype(np.float32)
        recordings.append(RecordingScores(f"{i} é.wav", ("cat", "dog"), p, 0.1, 4, 4 * n, 0.4 * n, p.mean(0)))
    rows = [(r.filename, 0.5, 1.5, label) for r in recordings for label in ("cat", "dog") if rng.random() < 0.7]
    table = LabelTable(rows, filenames=[r.filename for r in recordings], classes=("cat", "dog"))
    return evaluate_scores(recordings, table, EvaluationOptions(with_psds=True), about=about)


def test_what_is_loaded_is_what_was_saved(rng, tmp_path):
    evaluation = evaluated(rng, data="x", notes=["one"])
    with pytest.raises(ArgumentError, match="this evaluation is not saved"):
        evaluation.folder  # noqa: B018
    evaluation.save(tmp_path / "new")
    loaded = Evaluation.load(tmp_path / "new")
    assert loaded.folder == evaluation.folder == tmp_path / "new"
    assert repr(loaded.scores) == repr(evaluation.scores)  # in which NaN is NaN
    assert loaded.notes[0] == "one"
    assert (loaded.scores["reference"], loaded.scores["segment"], loaded.scores["clips"]) == ("data", 1.0, 6)
    assert loaded.scores["decoder"]["threshold"] == 0.5
    assert set(loaded.psds) == {"psds1", "psds2"}
    for kind in ("static_counts", "pooled_counts", "dynamic_counts", "event_counts"):
        mine, theirs = vars(getattr(evaluation, kind)), vars(getattr(loaded, kind))
        for name, value in mine.items():
            assert np.array_equal(value, theirs[name]) if isinstance(value, np.ndarray) else value == theirs[name]
    for part in ("maximum", "pooled", "dynamic", "event"):
        np.testing.assert_equal(getattr(loaded, part).to_dict(), getattr(evaluation, part).to_dict())
    assert repr(scores(loaded.dynamic_counts)) == repr(evaluation.dynamic)
    assert loaded.estimate() == evaluation.estimate()
    probabilities = loaded.probabilities()
    assert list(probabilities) == list(evaluation.probabilities())
    for name, expected in evaluation.probabilities().items():
        for field, value in vars(expected).items():
            np.testing.assert_array_equal(getattr(probabilities[name], field), value)
    loaded.save(tmp_path / "again")
    for name in ("scores.json", "events.tsv"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "new" / name).read_bytes()


def test_saved_evaluations_stand_for_their_folders(tmp_path):
    evaluations = [evaluated(np.random.default_rng(0)) for _ in range(2)]
    for evaluation, name in zip(evaluations, "ab", strict=True):
        evaluation.save(str(tmp_path / name))
    assert Evaluation.load(str(tmp_path / "a")).folder == tmp_path / "a"
    comparison = earmark.compare(evaluations)
    assert comparison.to_dict() == earmark.compare([tmp_path / "a", tmp_path / "b"]).to_dict()
    with pytest.raises(ArgumentError, match="a comparison needs at least two runs"):
        earmark.compare(str(tmp_path / "a"))
    assert earmark.report(evaluations[0], tmp_path / "page.html").is_file()


def test_an_evaluation_is_shown_as_a_table(rng):
    evaluation = evaluated(rng, split="test", notes=["one"])
    lines = str(evaluation).splitlines()
    assert lines[:2] == ["6 clips of split test", "Note: one"]
    static, dynamic = evaluation.maximum.per_class["cat"], evaluation.dynamic.per_class["cat"]
    numbers = [static.f1, static.precision, static.recall, dynamic.f1, dynamic.precision, dynamic.recall]
    (cat,) = [line for line in lines if line.startswith("cat ")]
    assert cat.split() == ["cat", *(f"{number:.3f}" for number in (*numbers, dynamic.error_rate))]
    assert [line.split(" ")[0] for line in lines].count("average") == 1
    assert lines[-1].startswith("Segment F1, 95% interval over clips: ")
    pandas = pytest.importorskip("pandas")
    frame = evaluation.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.index.tolist() == ["cat", "dog", "macro", "micro"]
    assert frame.loc["micro", "dynamic_f1"] == evaluation.dynamic.overall.f1
    assert evaluation.to_dict() is evaluation.scores


def test_names_are_escaped_in_html():
    table = LabelTable([("a.wav", None, None, "<script>")])
    evaluation = evaluate_events(table, table)
    assert "&lt;script&gt;" in evaluation._repr_html_()
    assert "<script>" not in evaluation._repr_html_()
    assert "-" in str(evaluation)  # segments of a reference without times
    assert np.isnan(evaluation.to_pandas().loc["micro", "dynamic_f1"])


def test_events_without_probabilities_leave_none(rng, tmp_path):
    evaluated(rng).save(tmp_path)
    table = LabelTable([("a.wav", 0, 1, "dog")])
    evaluate_events(table, table, about={"reference": "truth.tsv"}).save(tmp_path)
    loaded = Evaluation.load(tmp_path)
    assert loaded.probabilities() == {}  # nor those of before
    assert loaded.pooled_counts is None
    assert loaded.scores["static"]["pooled"] is None
    assert loaded.scores["reference"] == "truth.tsv"
    assert loaded.scores["dynamic"]["overall"]["f1"] == loaded.scores["event"]["overall"]["f1"] == 1


def test_clips_that_only_durations_name_are_refused_and_what_was_there_stands(rng, tmp_path):
    evaluated(rng).save(tmp_path)
    table = LabelTable([("a.wav", 0, 1, "dog")])
    evaluation = evaluate_events(table, table, durations={"a.wav": 1.0, "b.wav": 1.0})
    with pytest.raises(DataError, match="dynamic and static counts are not of the same clips"):
        evaluation.save(tmp_path)
    assert Evaluation.load(tmp_path).scores["clips"] == 6


def test_what_cannot_be_written_leaves_an_earlier_evaluation(rng, tmp_path):
    evaluated(rng).save(tmp_path)
    with pytest.raises(TypeError, match="not JSON serializable"):
        evaluated(rng, other=object()).save(tmp_path)
    assert Evaluation.load(tmp_path).scores["clips"] == 6


def test_killed_between_two_files_no_scores_stand_beside_counts_of_another_evaluation(rng, tmp_path, monkeypatch):
    def die(path, arrays):
        write_arrays(path, arrays)
        raise KeyboardInterrupt

    evaluated(rng).save(tmp_path)
    write_arrays = result.write_arrays
    monkeypatch.setattr(result, "write_arrays", die)
    with pytest.raises(KeyboardInterrupt):
        evaluated(rng, clips=7).save(tmp_path)
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "ledger.sqlite").touch()
    with pytest.raises(DataError, match=r"found contains detected events, not an evaluation; a report on them"):
        Evaluation.load(tmp_path / "found")
    with pytest.raises(DataError, match="not evaluated yet; run: earmark evaluate"):
        Evaluation.load(tmp_path)


def test_a_folder_without_evaluation_says_what_to_do(rng, tmp_path):
    with pytest.raises(DataError, match=r"run: earmark evaluate .* DATA"):
        Evaluation.load(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        Evaluation.load(tmp_path / "gone")
    evaluated(rng).save(tmp_path)
    whole = (tmp_path / "counts.npz").read_bytes()
    (tmp_path / "counts.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"counts.npz: damaged, truncated, or not an .npz file"):
        Evaluation.load(tmp_path)
    np.savez(tmp_path / "counts.npz", filenames=np.array(["a"]))
    with pytest.raises(DataError, match="classes is missing"):
        Evaluation.load(tmp_path)
    (tmp_path / "scores.json").write_text("[]")
    with pytest.raises(DataError, match=r"scores.json: expected a table, got \[\]"):
        Evaluation.load(tmp_path)


def test_null_is_loaded_as_nan(rng, tmp_path):
    evaluation = evaluated(rng)
    evaluation.save(tmp_path)
    written = evaluation.scores
    written["static"]["maximum"]["per_class"]["cat"]["precision"] = math.nan
    written["dynamic"]["macro"]["f1"] = written["psds"]["psds1"] = math.nan
    written["intervals"]["dynamic.f1"] = [math.nan, math.nan]
    (tmp_path / "scores.json").write_text(json_text(written))
    loaded = Evaluation.load(tmp_path)
    assert math.isnan(loaded.maximum.per_class["cat"].precision)
    assert math.isnan(loaded.dynamic.macro.f1)
    assert math.isnan(loaded.psds["psds1"])
    assert all(map(math.isnan, loaded.intervals["dynamic.f1"]))
    assert loaded.scores["decoder"]["low"] is None  # which is not a missing number
