"""One long recording: intervals over blocks of time, and dashes where a number would mean nothing."""

import math
import random

import numpy as np
import pytest

from earmark.annotations import LabelTable
from earmark.evaluation import segment
from earmark.evaluation.blocks import block_counts, block_length
from earmark.evaluation.comparison import compare_entries
from earmark.evaluation.scoring import evaluate_events
from earmark.evaluation.statistics import bootstrap
from earmark.evaluation.systems import System


def rows(name, seconds, n, seed):
    rng = random.Random(seed)
    onsets = [rng.uniform(0, seconds - 5) for _ in range(n)]
    return [(name, onset, onset + rng.uniform(0.1, 5), rng.choice(["crow", "dog"])) for onset in onsets]


@pytest.fixture
def hour():
    reference = LabelTable(rows("h.wav", 3600, 90, 0), classes=["crow", "dog"])
    others = rows("h.wav", 3600, 60, 1)
    return reference, LabelTable([*list(reference)[:50], *others], classes=["crow", "dog"])


def test_blocks_have_the_counts_of_the_recording(hour):
    durations = {"h.wav": 3600.0}
    whole = segment.counts(*hour, segment=1.0, durations=durations)
    block = block_length(durations, 1.0)
    assert block == 90
    blocks = block_counts(*hour, segment_length=1.0, block=block, durations=durations)
    assert len(blocks.filenames) == 40
    for name, value in whole.arrays().items():
        assert np.array_equal(blocks.arrays()[name].sum(0), value.sum(0)), name


def test_many_clips_or_short_ones_have_no_blocks():
    assert block_length({f"{i}.wav": 600.0 for i in range(10)}, 1.0) is None
    assert block_length({"a.wav": 60.0}, 1.0) is None
    assert block_length({"a.wav": 300.0, "b.wav": 100.3}, 0.7) == pytest.approx(10.5)


def test_classes_without_times_stay_unknown_in_every_block():
    reference = LabelTable([("h.wav", 5, 8, "crow"), ("h.wav", None, None, "dog")])
    estimate = LabelTable([("h.wav", 6, 8, "dog")], classes=reference.classes)
    counts = block_counts(reference, estimate, segment_length=1.0, block=20.0, durations={"h.wav": 200.0})
    assert counts.fp.sum() == 0
    assert counts.fn.sum() == 3


@pytest.mark.parametrize("untimed", [[], [("h.wav", None, None, "dog")]])
def test_blocks_without_events_are_known_where_the_recording_is(hour, untimed):
    """Labels that are unknown without a row, and times that override a label without times."""
    durations = {"h.wav": 3600.0}
    reference = LabelTable([*hour[0], *untimed], classes=hour[0].classes, complete=bool(untimed))
    whole = segment.counts(reference, hour[1], segment=1.0, durations=durations)
    blocks = block_counts(reference, hour[1], segment_length=1.0, block=20.0, durations=durations)
    for name, value in whole.arrays().items():
        assert np.array_equal(blocks.arrays()[name].sum(0), value.sum(0)), name


def test_one_long_recording_has_an_interval_over_time_and_dashes_for_clips(hour):
    evaluation = evaluate_events(hour[1], hour[0], durations={"h.wav": 3600.0})
    low, high = evaluation.intervals["dynamic.f1"]
    assert low < evaluation.dynamic.overall.f1 < high
    assert high - low > 0.02
    assert "static.maximum.f1" not in evaluation.intervals
    shown = str(evaluation)
    assert f"Segment F1, 95% interval over blocks of 1 min 30 s: {low:.3f} to {high:.3f}" in shown
    line = next(line for line in shown.splitlines() if line.startswith("crow"))
    assert line.split()[1:4] == ["-", "-", "-"]
    assert line.split()[4] != "-"
    (values,) = compare_entries([System("a", (evaluation,))]).values.values()
    assert values["dynamic.f1"][1:] == (low, high)
    assert math.isnan(values["static.maximum.f1"].low)


def test_a_single_clip_has_no_interval():
    interval = bootstrap(lambda weights: weights @ np.array([[0.5, 1.0]]), 1)
    assert interval.value.tolist() == [0.5, 1.0]
    assert np.isnan([interval.low, interval.high]).all()
