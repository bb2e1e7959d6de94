"""Judgements on disk: what is read back is what was judged, and damage is refused in a line."""

import json
import math

import numpy as np
import pytest

from earmark.annotations import LabelTable
from earmark.errors import DataError
from earmark.evaluation import saved
from earmark.evaluation.base import scores
from earmark.evaluation.models import judge, judge_events
from earmark.evaluation.saved import load_judgement, save_judgement
from earmark.files import json_text
from earmark.inference.bags import ClipProbabilities

HOP, REDUCTION = 0.1, 4


def judged(rng, clips=6):
    heard = []
    for i in range(clips):
        frames = int(rng.integers(5, 30))
        p = rng.random((frames, 2)).astype(np.float32)
        heard.append(ClipProbabilities(f"{i} é.wav", p, p.mean(0), 4 * frames, 0.4 * frames))
    rows = [(c.filename, 0.5, 1.5, label) for c in heard for label in ("cat", "dog") if rng.random() < 0.7]
    table = LabelTable(rows, filenames=[c.filename for c in heard], classes=("cat", "dog"))
    return judge(heard, table, hop=HOP, reduction=REDUCTION, with_psds=True)


def test_what_is_read_back_is_what_was_judged(rng, tmp_path):
    judgement = judged(rng)
    written = save_judgement(tmp_path / "new", judgement, {"data": "x", "notes": ["one"]})
    saved = load_judgement(tmp_path / "new")
    assert repr(saved.scores) == repr(json.loads(json.dumps(written)))  # in which NaN is NaN
    assert saved.scores["notes"] == ["one", *judgement.notes]
    assert (saved.scores["reference"], saved.scores["segment"], saved.scores["clips"]) == ("data", 1.0, 6)
    assert saved.scores["decoder"]["threshold"] == 0.5
    assert set(saved.scores["psds"]) == {"psds1", "psds2"}
    for kind in ("static_counts", "pooled_counts", "dynamic_counts", "event_counts"):
        mine, theirs = vars(getattr(judgement, kind)), vars(getattr(saved, kind))
        for name, value in mine.items():
            assert np.array_equal(value, theirs[name]) if isinstance(value, np.ndarray) else value == theirs[name]
    assert scores(saved.dynamic_counts, convention="plain") == judgement.dynamic
    assert saved.estimate() == judgement.estimate
    heard = saved.probabilities()
    assert list(heard) == [c.filename for c in judgement.clips]
    for c in judgement.clips:
        p, frames, duration = heard[c.filename]
        np.testing.assert_array_equal(p, c.dynamic)
        assert (frames, duration) == (c.frames, c.duration)


def test_events_without_probabilities_leave_none(rng, tmp_path):
    save_judgement(tmp_path, judged(rng), {})
    table = LabelTable([("a.wav", 0, 1, "dog")])
    save_judgement(tmp_path, judge_events(table, table), {"reference": "truth.tsv"})
    saved = load_judgement(tmp_path)
    assert saved.probabilities() == {}  # nor those of before
    assert saved.pooled_counts is None
    assert saved.scores["static"]["pooled"] is None
    assert saved.scores["reference"] == "truth.tsv"
    assert saved.scores["dynamic"]["overall"]["f1"] == saved.scores["event"]["overall"]["f1"] == 1


def test_clips_that_only_durations_name_are_refused_and_what_was_there_stands(rng, tmp_path):
    save_judgement(tmp_path, judged(rng), {})
    table = LabelTable([("a.wav", 0, 1, "dog")])
    judgement = judge_events(table, table, durations={"a.wav": 1.0, "b.wav": 1.0})
    with pytest.raises(DataError, match="dynamic and static counts are not of the same clips"):
        save_judgement(tmp_path, judgement, {})
    assert load_judgement(tmp_path).scores["clips"] == 6


def test_killed_between_two_files_no_scores_stand_beside_counts_of_another_judgement(rng, tmp_path, monkeypatch):
    def die(path, arrays):
        write_arrays(path, arrays)
        raise KeyboardInterrupt

    save_judgement(tmp_path, judged(rng), {})
    write_arrays = saved._write_arrays
    monkeypatch.setattr(saved, "_write_arrays", die)
    with pytest.raises(KeyboardInterrupt):
        save_judgement(tmp_path, judged(rng, clips=7), {})
    with pytest.raises(DataError, match="not judged yet; run: earmark evaluate"):
        load_judgement(tmp_path)


def test_a_folder_without_judgement_says_what_to_do(rng, tmp_path):
    with pytest.raises(DataError, match=r"run: earmark evaluate .* DATA"):
        load_judgement(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        load_judgement(tmp_path / "gone")
    save_judgement(tmp_path, judged(rng), {})
    whole = (tmp_path / "counts.npz").read_bytes()
    (tmp_path / "counts.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"counts.npz: damaged, or not what evaluate writes"):
        load_judgement(tmp_path)
    np.savez(tmp_path / "counts.npz", filenames=np.array(["a"]))
    with pytest.raises(DataError, match="it holds no classes"):
        load_judgement(tmp_path)
    (tmp_path / "scores.json").write_text("[]")
    with pytest.raises(DataError, match=r"scores.json: damaged: an object expected"):
        load_judgement(tmp_path)


def test_null_is_read_as_nan_and_so_are_files_of_before(rng, tmp_path):
    written = save_judgement(tmp_path, judged(rng), {})
    written["static"]["maximum"]["per_class"]["cat"]["precision"] = math.nan
    written["dynamic"]["macro"]["f1"] = written["psds"]["psds1"] = math.nan
    written["intervals"]["dynamic.f1"] = (math.nan, math.nan)
    for text in (json_text(written), json.dumps(written)):
        (tmp_path / "scores.json").write_text(text)
        found = load_judgement(tmp_path).scores
        assert math.isnan(found["static"]["maximum"]["per_class"]["cat"]["precision"])
        assert math.isnan(found["dynamic"]["macro"]["f1"])
        assert math.isnan(found["psds"]["psds1"])
        assert all(map(math.isnan, found["intervals"]["dynamic.f1"]))
        assert found["decoder"]["low"] is None  # which is no number that is missing
