"""What is said before scores are believed: one line for each reason, none without."""

import numpy as np
import pytest

from earmark.annotations import LabelTable
from earmark.evaluation.clip import counts
from earmark.evaluation.references import rough_notes, untimed_notes
from earmark.evaluation.scoring import evaluate_events, evaluate_scores
from earmark.inference.scores import RecordingScores

WEAK = LabelTable([("a.wav", None, None, "dog"), ("b.wav", None, None, "cat")])
STRONG = LabelTable([("a.wav", 0, 1, "dog"), ("b.wav", 1, 2, "cat")])


def counted(clips, **classes):
    """Counts of clips, of which so many have each class."""
    targets = np.stack([np.arange(clips) < n for n in classes.values()], axis=1)
    return counts(targets, targets, classes=list(classes))


@pytest.mark.parametrize(
    ("clips", "classes", "note"),
    [
        (30, {"dog": 5, "cat": 0}, None),
        (29, {"dog": 5}, "only 29 clips were evaluated"),
        (1, {"dog": 1}, "only 1 clip was evaluated, and dog is in fewer than 5 clips"),
        (90, {"dog": 4, "cat": 5, "owl": 1}, "dog, owl are in fewer than 5 clips"),
        (30, {"a": 1, "b": 1, "c": 1, "d": 1, "e": 4, "f": 9}, "a, b, c and 2 more are in fewer than 5 clips"),
    ],
)
def test_few_clips_make_rough_numbers(clips, classes, note):
    said = f"the numbers are rough: {note}; evaluate more clips"
    assert rough_notes(counted(clips, **classes)) == (() if note is None else (said,))


def test_an_unknown_class_is_not_counted():
    targets = np.full((40, 1), np.nan)
    targets[:4] = 1
    (note,) = rough_notes(counts(targets, np.ones((40, 1)), classes=["dog"]))
    assert "dog is in fewer than 5 clips" in note


def test_labels_without_times_are_said_to_be_the_reason():
    (note,) = untimed_notes(WEAK, STRONG)
    assert note.startswith("no scores of segments and events: the reference has no times; ")
    assert "--reference FILE" in note
    (note,) = untimed_notes(STRONG, WEAK)
    assert "the estimate has no times" in note
    mixed = LabelTable([*STRONG, ("a.wav", None, None, "owl"), ("b.wav", None, None, "dog")])
    (note,) = untimed_notes(mixed, STRONG)
    assert note.startswith("the reference has no times of owl, so scores of segments")
    nothing = LabelTable([], filenames=["a.wav"], classes=["dog"])
    assert untimed_notes(STRONG, nothing) == untimed_notes(nothing, STRONG) == ()


def test_an_evaluation_says_so_whenever_scores_are_missing():
    p = np.full((5, 2), 0.7, np.float32)
    scores = [RecordingScores(name, ("cat", "dog"), p, 1.0, 1, 5, 5.0, p[0]) for name in ("a.wav", "b.wav")]
    weak = (evaluate_scores(scores, WEAK), evaluate_events(STRONG, WEAK), evaluate_events(WEAK, STRONG))
    for evaluation in weak:
        assert evaluation.dynamic is None
        missing, rough = evaluation.notes
        assert missing.startswith("no scores of segments and events: ")
        assert rough.startswith("the numbers are rough: only 2 clips were evaluated, and ")
    (rough,) = evaluate_events(STRONG, STRONG).notes
    assert rough.startswith("the numbers are rough")
