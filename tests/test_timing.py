"""Seconds, samples and frames: the rules that everything else counts by."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.timing import span_to_frames, time_to_frame, time_to_sample

HOPS = [0.1, 0.5, 1.0, 1024 / 44100, 512 / 22050, 0.02]
hops = pytest.mark.parametrize("hop", HOPS)


def test_the_nearest_sample():
    assert [time_to_sample(t, 10) for t in (0, 0.04, 0.05, 0.06, 1.0)] == [0, 0, 1, 1, 10]
    assert time_to_sample(9.99999999, 44100) == 441000


@hops
def test_a_frame_begins_in_itself_however_far_out(hop):
    for frame in (*range(1000), 86_400 * 43):
        assert time_to_frame(frame * hop, hop) == frame


@hops
def test_a_time_inside_a_frame_falls_into_it(hop):
    for frame in (0, 1, 7, 430):
        assert time_to_frame((frame + 0.5) * hop, hop) == frame
        assert time_to_frame((frame + 0.999) * hop, hop) == frame


@hops
def test_a_span_of_whole_frames_touches_just_those(hop):
    for first, last in [(0, 1), (3, 6), (100, 430)]:
        assert span_to_frames(first * hop, last * hop, hop) == (first, last)


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([8, 50, 1000]))
def test_a_span_touches_the_frames_that_overlap_it(begin, length, per_hop):
    """Exact, in thousandths of a second, against the definition in rational numbers."""
    onset, offset, hop = Fraction(begin, 1000), Fraction(begin + length, 1000), Fraction(per_hop, 1000)
    first, last = span_to_frames(float(onset), float(offset), float(hop))
    assert first * hop <= onset < (first + 1) * hop
    if length:
        assert (last - 1) * hop < offset <= last * hop
    else:
        assert last == first + 1
