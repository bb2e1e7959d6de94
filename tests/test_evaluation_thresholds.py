"""Thresholds tuned on validation data: the best candidate of each class, by the segments that evaluation counts."""

import numpy as np
import pytest
from reference import events as slow

from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import thresholds
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.evaluation.thresholds import tune_decoder, tune_thresholds
from earmark.events import Decoder
from earmark.inference.scores import RecordingScores

HOP = 0.1
CLASSES = ("dog", "cat", "bird")


def recording(name, p):
    return RecordingScores(name, CLASSES, np.asarray(p, np.float32), HOP, 1, len(p), len(p) * HOP)


def validation_data(rng, n_clips=20):
    """Clips of 10 s in which class 0 is active at 0.3 and class 1 only at 0.8; class 2 is never active."""
    rows, recordings = [], []
    for i in range(n_clips):
        p = rng.random((100, 3)) * np.array([0.22, 0.72, 0.4])
        for c, level in ((0, 0.3), (1, 0.8)):
            first = int(rng.integers(0, 60))
            p[first : first + 30, c] = level
            rows.append((f"{i}.wav", first / 10, first / 10 + 3, CLASSES[c]))
        recordings.append(recording(f"{i}.wav", p))
    return recordings, LabelTable(rows, classes=CLASSES, splits={r.filename: "validate" for r in recordings})


def test_the_thresholds_that_separate_are_chosen(rng):
    recordings, reference = validation_data(rng)
    tuned = tune_thresholds(recordings, reference, tuned_on="validate")
    assert tuned.threshold == (0.3, 0.75, 0.5)  # nearest to 0.5 of those that separate; the third is never there
    assert tuned.low is None
    assert tuned.tuned_on.startswith("validate: 20 clips (labels ")
    assert tune_thresholds(recordings[::-1], reference, tuned_on="validate") == tuned
    assert tune_thresholds(recordings[:5], reference, tuned_on="validate").tuned_on != tuned.tuned_on
    assert Decoder.from_dict(tuned.to_dict()) == tuned
    before, after = (
        evaluate_scores(recordings, reference, EvaluationOptions(decoder=decoder)).dynamic.macro.f1
        for decoder in (Decoder(), tuned)
    )
    assert after > before


def test_other_settings_are_kept_and_low_is_lowered(rng):
    recordings, reference = validation_data(rng)
    options = EvaluationOptions(decoder=Decoder(0.6, low=0.4, median=0.3, min_duration=0.2))
    tuned = tune_thresholds(recordings, reference, options, tuned_on="v")
    assert (tuned.median, tuned.min_duration) == (0.3, 0.2)
    assert tuned.threshold[0] <= 0.3
    assert tuned.low[0] == tuned.threshold[0]
    assert tuned.low[1:] == (0.4, 0.4)


def test_the_best_candidate_is_that_of_the_slow_count(rng, monkeypatch):
    """On noise, where no threshold is right, with a class that is unknown in half of the clips."""
    scores = {f"{i}.wav": np.round(rng.random((50, 3)), 2).astype(np.float32) for i in range(6)}
    rows = [(f"{i}.wav", 0.5 * i, 0.5 * i + 1.7, CLASSES[i % 2]) for i in range(6)]
    rows += [(f"{i}.wav", None, None, "bird") for i in range(3)]
    rows += [(f"{i}.wav", 1.0, 3.0, "bird") for i in range(3, 6)]
    reference = LabelTable(rows, classes=CLASSES)
    candidates = (0.9, 0.95, 0.99)
    recordings = [recording(name, p) for name, p in scores.items()]
    monkeypatch.setattr(thresholds, "THRESHOLDS", candidates)
    tuned = tune_thresholds(recordings, reference, tuned_on="v")
    for c, label in enumerate(CLASSES):
        f1 = []
        for threshold in candidates:
            truth, guess = [], []
            for name, p in scores.items():
                if label == "bird" and name in ("0.wav", "1.wav", "2.wav"):
                    continue
                true = [(row.onset, row.offset) for row in reference.of(name) if row.label == label]
                found = [
                    e[:2] for e in slow.decode(p[:, c], HOP, np.float32(threshold), np.float32(threshold), 0, 0, 0)
                ]
                for s in range(5):
                    truth.append(any(on < s + 1 and off > s for on, off in true))
                    guess.append(any(on < s + 1 and off > s for on, off in found))
            f1.append(slow.segment_f1(truth, guess))
        assert f1[candidates.index(tuned.threshold[c])] == max(f1) > 0


def test_test_clips_and_bad_arguments_are_refused(rng):
    recordings, reference = validation_data(rng, 3)
    reference.splits["1.wav"] = "test"
    with pytest.raises(ArgumentError, match=r"'1\.wav' belongs to the test split; thresholds are tuned on validation"):
        tune_thresholds(recordings, reference, tuned_on="validate")
    reference.splits.clear()
    with pytest.raises(ArgumentError, match="expected a segment length above 0 s, got 0"):
        tune_thresholds(recordings, reference, EvaluationOptions(segment=0), tuned_on="v")
    with pytest.raises(DataError, match="expected at least one clip to evaluate, got none"):
        tune_thresholds([], reference, tuned_on="v")
    options = EvaluationOptions(decoder=Decoder(low=(0.1, 0.2)))
    with pytest.raises(ArgumentError, match="low: expected values for 3 classes, got 2"):
        tune_thresholds(recordings, reference, options, tuned_on="v")
    with pytest.raises(ArgumentError, match=r"'b.wav' is not one of the 3 files"):
        tune_thresholds([recording("b.wav", recordings[0].p)], reference, tuned_on="v")


def weak_data(rng, n_clips=40):
    """Clips of 20 s, half of them with each class, and labels of clips: frames of 3 s with the sound are above 0.8.

    Other frames of a dog are below 0.7; a cat has none above 0.3 in 3 s with the sound, and below 0.2 elsewhere.
    """
    rows, recordings = [], []
    for i in range(n_clips):
        p = rng.random((200, 3)) * np.array([0.7, 0.2, 0.4])
        for c in range(2):
            if (i + c) % 2:
                first = int(rng.integers(0, 170))
                p[first : first + 30, c] = (0.8, 0.3)[c] + 0.05 * rng.random(30)
                rows.append((f"{i}.wav", None, None, CLASSES[c]))
        recordings.append(recording(f"{i}.wav", p))
    return recordings, LabelTable(rows, filenames=[r.filename for r in recordings], classes=CLASSES)


@pytest.mark.parametrize("cautious", [False, True])
def test_labels_of_clips_tell_the_thresholds_that_separate(rng, cautious):
    recordings, reference = weak_data(rng)
    tuned = tune_thresholds(recordings, reference, tuned_on="validate", cautious=cautious)
    assert tuned.threshold[2] == 0.5  # nowhere
    assert 0.7 <= tuned.threshold[0] <= 0.8
    assert 0.2 <= tuned.threshold[1] <= 0.3
    assert tuned.tuned_on.endswith("by F1 of 1-s segments, estimated from clip labels")


def test_a_cautious_choice_keeps_the_threshold_where_nothing_shows_that_another_is_better(rng):
    recordings = [recording(f"{i}.wav", rng.random((100, 3))) for i in range(20)]
    names = [r.filename for r in recordings]
    for table in (
        LabelTable([], filenames=names, classes=CLASSES),
        LabelTable([(name, None, None, label) for name in names for label in CLASSES], classes=CLASSES),
    ):
        assert tune_thresholds(recordings, table, tuned_on="v", cautious=True).threshold == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(("n_with", "is_moved"), [(1, False), (4, True)])
def test_a_cautious_choice_needs_more_than_one_clip_with_the_sound(n_with, is_moved):
    recordings = []
    for i in range(12):
        p = np.full((100, 3), 0.01)
        if i < n_with:
            p[20:60, 0] = 0.3
        recordings.append(recording(f"{i}.wav", p))
    rows = [(f"{i}.wav", None, None, "dog") for i in range(n_with)]
    table = LabelTable(rows, filenames=[r.filename for r in recordings], classes=CLASSES)
    threshold = np.broadcast_to(tune_thresholds(recordings, table, tuned_on="v", cautious=True).threshold, 3)
    assert (threshold[0] < 0.5) == is_moved
    assert tune_thresholds(recordings, table, tuned_on="v").threshold[0] < 0.5


def test_each_class_gets_the_decoder_whose_events_are_right():
    """A dog's probabilities have holes, a cat's events are half a second apart, and there is never a bird."""
    rows, recordings = [], []
    for i in range(4):
        p = np.full((200, 3), 0.1)
        first = 20 + 10 * i
        p[first : first + 30, 0] = 0.9
        p[first + 4 : first + 26 : 5, 0] = 0.1
        p[first : first + 30, 1] = p[first + 35 : first + 70, 1] = 0.9
        rows.append((f"{i}.wav", first / 10, first / 10 + 3, "dog"))
        rows += [(f"{i}.wav", (first + a) / 10, (first + b) / 10, "cat") for a, b in ((0, 30), (35, 70))]
        recordings.append(recording(f"{i}.wav", p))
    reference = LabelTable(rows, classes=CLASSES)
    tuned = tune_decoder(recordings, reference, tuned_on="validate")
    assert tuned.tuned_on.endswith("by F1 of 1-s segments and of events")
    plain = [(tuned.median[c], tuned.min_gap[c], tuned.boxes[c], tuned.low[c]) for c in range(3)]
    assert plain[1:] == [(0.0, 0.0, 0.0, 0.5)] * 2 != plain[:1]
    event = evaluate_scores(recordings, reference, EvaluationOptions(decoder=tuned)).event
    assert event.overall.f1 == 1.0
    assert evaluate_scores(recordings, reference).event.overall.f1 < 1.0
    assert Decoder.from_dict(tuned.to_dict()) == tuned
    weak = LabelTable([("0.wav", None, None, "dog")], filenames=[r.filename for r in recordings], classes=CLASSES)
    with pytest.raises(DataError, match="no label of these clips has times; tune thresholds only"):
        tune_decoder(recordings, weak, tuned_on="validate")
