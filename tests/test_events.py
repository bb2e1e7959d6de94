"""From probabilities to events: the same whole, in pieces, and as the slow reference has it."""

import json

import numpy as np
import pytest
import scipy.interpolate
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import events as slow

import earmark.events.decoder
from earmark.annotations import LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.events import Decoder, InterpolationStream, interpolate

HOP = 1024 / 44100
CLASSES = ("dog", "cat", "bird")


def sorted_events(events):
    return sorted(events, key=lambda e: (e.onset, e.offset, CLASSES.index(e.label)))


def slowly(p, hop, decoder, duration=None):
    """(label, onset, offset, confidence) of all classes, by the reference."""
    found = []
    for c, label in enumerate(CLASSES):
        values = {}
        for name in ("threshold", "low", "median", "min_duration", "min_gap", "boxes"):
            setting = getattr(decoder, name)
            setting = decoder.threshold if name == "low" and setting is None else setting
            values[name] = setting[c] if isinstance(setting, tuple) else setting
        values |= {name: p.dtype.type(values[name]) for name in ("threshold", "low")}
        events = slow.decode(p[:, c], hop, **values, duration=duration)
        found += [(label, round(on, 3), round(off, 3), round(peak, 4)) for on, off, peak in events]
    return sorted(found)


# Probabilities on a coarse grid, so that ties with thresholds happen.
probabilities = st.integers(0, 60).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 10), min_size=3, max_size=3), min_size=n, max_size=n)
).map(lambda rows: np.array(rows, np.float64).reshape(-1, 3) / 10)  # fmt: skip


@st.composite
def decoders(draw):
    def per_class(values):
        return draw(st.one_of(values, st.tuples(values, values, values)))

    tenths = st.integers(1, 10).map(lambda i: i / 10)
    seconds = st.integers(0, 9).map(lambda i: i / 10)
    threshold = per_class(tenths)
    low = draw(st.sampled_from([None, 0.0, 0.1, 0.5]))
    if low is not None and np.min(threshold) < low:
        low = float(np.min(threshold))
    windows = st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.5])
    return Decoder(threshold, low, per_class(seconds), per_class(seconds), per_class(seconds), per_class(windows))


@given(probabilities, decoders(), st.sampled_from([None, 0.0, 1.05, 3.0]), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=200, deadline=None)
def test_events_are_those_of_the_slow_reference(p, decoder, duration, dtype):
    p = p.astype(dtype)
    events = decoder.decode(p, 0.1, CLASSES, "a.wav", duration)
    assert sorted((e.label, e.onset, e.offset, e.confidence) for e in events) == slowly(p, 0.1, decoder, duration)
    assert events == sorted_events(events)
    assert all(e.filename == "a.wav" and e.present is True for e in events)
    LabelTable(events, classes=CLASSES)  # refuses what cannot be true


@given(probabilities, decoders(), st.data())
@settings(max_examples=50, deadline=None)
def test_events_do_not_depend_on_how_a_recording_is_cut(p, decoder, data):
    stream = decoder.stream(0.1, CLASSES, "a.wav", 4.0)
    events, at = [], 0
    while at < len(p):
        size = data.draw(st.integers(0, 12))
        events += stream.update(p[at : at + size])
        at += size
    events += stream.finish()
    assert sorted_events(events) == decoder.decode(p, 0.1, CLASSES, "a.wav", 4.0)


def test_large_arrays_are_cut_inside_without_a_trace(rng, monkeypatch):
    p = rng.random((4000, 3)) ** 2
    decoder = Decoder((0.5, 0.6, 0.3), 0.2, median=0.5, min_duration=0.2, min_gap=(0.0, 0.3, 3.0), boxes=(0, 0.2, 0.9))
    monkeypatch.setattr(earmark.events.decoder, "_BLOCK", 1 << 20)
    at_once = decoder.decode(p, 0.1, CLASSES, "a.wav")
    for block in (1, 7, 1000):
        monkeypatch.setattr(earmark.events.decoder, "_BLOCK", block)
        assert decoder.decode(p, 0.1, CLASSES, "a.wav") == at_once
    assert len(at_once) > 50
    assert sorted((e.label, e.onset, e.offset, e.confidence) for e in at_once) == slowly(p, 0.1, decoder)


def test_the_median_filter_takes_as_many_frames_as_fit_into_half_of_it(rng):
    p = rng.random((500, 3))
    for seconds, size in ((0.0, 1), (0.19, 1), (0.2, 3), (0.3, 3), (0.8, 9)):
        smooth = scipy.ndimage.median_filter(p, size=(size, 1), mode="nearest")
        filtered = Decoder(median=seconds).decode(p, 0.1, CLASSES, "a.wav")
        plain = Decoder().decode(smooth, 0.1, CLASSES, "a.wav")
        assert filtered == plain


def test_a_stream_keeps_its_latency_and_its_memory_small(rng):
    decoder = Decoder(0.5, 0.3, median=0.5, min_gap=0.4)
    stream = decoder.stream(0.1, CLASSES, "a.wav")
    assert stream.latency == pytest.approx(0.6)  # 2 frames of the filter, 4 of the gap
    p = rng.random((500, 3)) ** 2
    ends = [event.offset for event in decoder.decode(p, 0.1, CLASSES, "a.wav")]
    given_out = []
    for k in range(len(p)):
        given_out += stream.update(p[k : k + 1])
        due = sum(offset + stream.latency <= (k + 1) * 0.1 + 1e-6 for offset in ends)
        assert len(given_out) >= due
        assert len(stream._kept) <= 4
        assert all(len(column) <= 3 for column in stream._open)
    assert Decoder().stream(0.1, CLASSES, "a.wav").latency == pytest.approx(0.1)


def test_confidence_is_the_largest_probability_within():
    p = np.array([[0.2], [0.6], [0.95], [0.7], [0.2]])
    (event,) = Decoder().decode(p, 0.5, ["dog"], "a.wav")
    assert event.confidence == 0.95
    for c in (0.95, 0.96):  # the event is what a threshold of its confidence just finds
        assert len(Decoder(c).decode(p, 0.5, ["dog"], "a.wav")) == (c <= event.confidence)
    (event,) = Decoder(median=1.0).decode(p, 0.5, ["dog"], "a.wav")  # a peak of one frame is not believed
    assert event.confidence == 0.7


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_threshold_is_met_in_the_precision_of_the_probabilities(dtype):
    for threshold in (0.1, 0.3, 0.7, 0.9):
        p = np.full((2, 1), threshold, dtype)
        expected = 1 if dtype != np.float16 else int(p[0, 0].astype(np.float32) >= np.float32(threshold))
        assert len(Decoder(threshold).decode(p, 0.5, ["dog"], "a.wav")) == expected
        assert len(Decoder((threshold,)).decode(p, 0.5, ["dog"], "a.wav")) == expected


def test_gaps_are_closed_before_short_events_are_dropped():
    p = np.array([[1.0], [0.0], [1.0]])
    assert Decoder(min_duration=0.3).decode(p, 0.1, ["dog"], "a.wav") == []
    (event,) = Decoder(min_duration=0.3, min_gap=0.2).decode(p, 0.1, ["dog"], "a.wav")
    assert (event.onset, event.offset) == (0.0, pytest.approx(0.3))
    assert len(Decoder(min_gap=0.1).decode(p, 0.1, ["dog"], "a.wav")) == 2  # a gap of just min_gap parts


@pytest.mark.parametrize("seconds", [1e30, 1e308])
def test_no_event_is_long_enough_for_a_duration_beyond_all_numbers_of_frames(seconds):
    p = np.array([[1.0], [0.0], [1.0]])
    assert Decoder(min_duration=seconds).decode(p, 0.1, ["dog"], "a.wav") == []
    (event,) = Decoder(min_gap=seconds).decode(p, 0.1, ["dog"], "a.wav")
    assert event.offset == pytest.approx(0.3)


def test_events_end_with_the_clip():
    p = np.ones((4, 1))
    (event,) = Decoder().decode(p, 0.5, ["dog"], "a.wav", duration=1.7)
    assert event.offset == 1.7
    p[:3] = 0
    assert Decoder().decode(p, 0.5, ["dog"], "a.wav", duration=1.5) == []


def test_a_clip_without_frames_has_no_events():
    assert Decoder(median=1.0).decode(np.zeros((0, 3)), 0.1, CLASSES, "a.wav") == []


def test_interpolation_is_the_authors(rng):
    """scipy's interp1d between k / n * duration, holding the last value: 26 output frames for 430."""
    p = rng.random((26, 3))
    line = scipy.interpolate.interp1d(np.arange(26) / 26 * 10, p.T, bounds_error=False, fill_value=p[-1])
    expected = line(np.arange(430) / 430 * 10).T
    np.testing.assert_allclose(interpolate(p, 430 / 26, 430), expected, atol=1e-12)
    np.testing.assert_allclose(slow.interpolate(p, 430 / 26, 430), expected, atol=1e-12)
    for factor, n in ((16, 431), (1, 26), (2.5, 40), (16, 0)):
        np.testing.assert_allclose(interpolate(p, factor, n), slow.interpolate(p, factor, n), atol=1e-12)
    assert interpolate(p.astype(np.float32), 16, 400).dtype == np.float32


def test_the_authors_rule_gives_events_half_a_frame_early_and_the_middle_does_not():
    p = np.array([[0.0], [0.0], [1.0], [1.0], [0.0], [0.0]])  # sound in feature frames 32 to 64
    spans = {}
    for align in ("start", "middle"):
        (event,) = Decoder().decode(interpolate(p, 16, 96, align=align), 1.0, ["dog"], "a.wav")
        spans[align] = (event.onset, event.offset)
    assert spans == {"start": (24.0, 57.0), "middle": (32.0, 64.0)}


def test_interpolation_between_one_frame_is_flat():
    assert (interpolate([[0.3]], 16, 20) == 0.3).all()
    assert (interpolate([[0.3]], 16, 20, align="middle") == 0.3).all()


def test_interpolation_refuses_what_means_nothing():
    with pytest.raises(DataError, match="no frames to interpolate between"):
        interpolate(np.zeros((0, 2)), 16, 4)
    with pytest.raises(ArgumentError, match="factor: expected a positive number, got 0"):
        interpolate([[0.5]], 0, 4)
    with pytest.raises(ArgumentError, match="n_frames: expected at least 0, got -1"):
        interpolate([[0.5]], 16, -1)
    with pytest.raises(ArgumentError, match="align='centre' is not known"):
        interpolate([[0.5]], 16, 4, align="centre")


def test_a_decoder_survives_a_file():
    decoder = Decoder(np.array([0.3, 0.6]), low=[0.1, 0.2], median=0.5, min_gap=0.1, tuned_on="validate")
    assert Decoder.from_dict(json.loads(json.dumps(decoder.to_dict()))) == decoder
    assert Decoder.from_dict({}) == Decoder()
    with pytest.raises(ArgumentError, match="decoder setting='treshold' is not known; did you mean 'threshold'"):
        Decoder.from_dict({"treshold": 0.5})


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"threshold": 1.5}, r"threshold: expected a value in \[0, 1\], or one per class, got 1.5"),
        ({"threshold": float("nan")}, r"threshold: expected a value in \[0, 1\]"),
        ({"threshold": "0.5"}, r"threshold: expected a value in \[0, 1\].*got '0.5'"),
        ({"threshold": None}, r"threshold: expected a value in \[0, 1\].*got None"),
        ({"threshold": []}, r"threshold: expected a value in \[0, 1\].*got \[\]"),
        ({"threshold": [[0.5]]}, r"threshold: expected a value in \[0, 1\]"),
        ({"low": {"dog": 0.5}}, r"low: expected a value in \[0, 1\]"),
        ({"median": -1}, "median: expected a number of seconds, or one per class, got -1"),
        ({"median": (1.0, 1e30)}, r"median: expected at most 3600 seconds, got \(1.0, 1e\+30\)"),
        ({"min_gap": float("inf")}, "min_gap: expected a number of seconds"),
        ({"threshold": (0.5, 0.6), "median": (1, 2, 3)}, "got 2 for threshold, 3 for median"),
        ({"low": 0.6}, "low: expected at most the threshold 0.5, got 0.6"),
        ({"threshold": (0.5, 0.3), "low": 0.4}, "low: expected at most the threshold 0.3, got 0.4"),
        ({"tuned_on": 7}, "tuned_on: expected text, got 7"),
    ],
)
def test_a_decoder_refuses_what_cannot_be_meant(setting, message):
    with pytest.raises(ArgumentError, match=message):
        Decoder(**setting)


def test_decoding_refuses_what_means_nothing():
    one = np.zeros((4, 1))
    with pytest.raises(DataError, match=r"probabilities: expected shape \(frames, 2\), got \(4, 1\)"):
        Decoder().decode(one, 0.1, ["dog", "cat"], "a.wav")
    with pytest.raises(DataError, match=r"probabilities: expected shape \(frames, 1\), got \(4,\)"):
        Decoder().decode(one[:, 0], 0.1, ["dog"], "a.wav")
    for bad in (np.nan, 1.01, -0.01):
        with pytest.raises(DataError, match=r"probabilities: expected numbers in \[0, 1\]"):
            Decoder().decode(one + bad, 0.1, ["dog"], "a.wav")
    with pytest.raises(ArgumentError, match="hop: expected a positive number of seconds, got 0"):
        Decoder().decode(one, 0, ["dog"], "a.wav")
    with pytest.raises(ArgumentError, match="duration: expected a number of seconds, got -1"):
        Decoder().decode(one, 0.1, ["dog"], "a.wav", duration=-1)
    for classes in ([], ["dog", "dog"]):
        with pytest.raises(ArgumentError, match="classes: expected distinct names"):
            Decoder().decode(one, 0.1, classes, "a.wav")
    with pytest.raises(ArgumentError, match="threshold: expected values for 1 class, got 2"):
        Decoder((0.5, 0.6)).decode(one, 0.1, ["dog"], "a.wav")


def test_a_finished_stream_says_so():
    stream = Decoder().stream(0.1, ["dog"], "a.wav")
    stream.finish()
    with pytest.raises(ArgumentError, match=r"this stream is finished; start another with Decoder\.stream"):
        stream.update([[0.5]])
    with pytest.raises(ArgumentError, match="this stream is finished already"):
        stream.finish()


@settings(max_examples=60, deadline=None)
@given(
    factor=st.sampled_from([1, 2, 3, 4, 16, 0.5, 16.54]),
    frames=st.integers(1, 40),
    more=st.integers(0, 20),
    dtype=st.sampled_from([np.float32, np.float64]),
    cuts=st.lists(st.integers(0, 40), max_size=8),
)
def test_interpolation_in_pieces_is_that_of_the_whole_to_the_last_bit(factor, frames, more, dtype, cuts):
    p = np.random.default_rng(frames).uniform(0, 1, (frames, 2)).astype(dtype)
    n_frames = int(np.ceil(frames * factor)) + more
    stream = InterpolationStream(factor, 2)
    parts = [stream.update(part) for part in np.split(p, sorted(cut for cut in cuts if cut <= frames))]
    found = np.concatenate([*parts, stream.finish(n_frames)])
    np.testing.assert_array_equal(found, interpolate(p, factor, n_frames, align="middle"))
    assert found.dtype == dtype


def test_an_interpolated_frame_comes_as_soon_as_it_is_certain():
    stream = InterpolationStream(16, 1)
    assert [len(stream.update([[0.5]])) for _ in range(3)] == [8, 16, 16]
    assert len(stream.update(np.empty((0, 1)))) == 0
    assert len(stream.finish(50)) == 10


def test_an_interpolation_stream_refuses_what_it_cannot_do():
    with pytest.raises(ArgumentError, match="factor: expected a positive number, got 0"):
        InterpolationStream(0, 1)
    with pytest.raises(DataError, match="no frames to interpolate between"):
        InterpolationStream(2, 1).finish(3)
    stream = InterpolationStream(4, 1)
    stream.update([[0.1], [0.2]])
    with pytest.raises(ArgumentError, match="n_frames: expected at least the 6 returned so far, got 5"):
        stream.finish(5)
    stream.finish(8)
    with pytest.raises(ArgumentError, match="this stream is finished; start another"):
        stream.update([[0.3]])
    with pytest.raises(ArgumentError, match="this stream is finished already"):
        stream.finish(8)
