"""The figure of an excerpt: its content, at times of the recording."""

import numpy as np
import pytest
from matplotlib.text import Text

from earmark import plots
from earmark.annotations import Label
from earmark.errors import ArgumentError, DataError
from earmark.plots.clip import recording_figure

pytestmark = pytest.mark.usefixtures("drawn_figures")

RATE = 16000
EVENTS = [
    Label("a.wav", 3719.0, 3722.0, "dog"),  # begins before
    Label("a.wav", 3725.0, 3726.0, "rain"),
    Label("a.wav", 3735.0, 3736.0, "dog"),  # lies behind
]


@pytest.fixture
def sound(rng):
    return rng.normal(size=10 * RATE).astype(np.float32)


def drawn(figure):
    """Lines of events: row, onset, offset."""
    axes = figure.axes[1]
    lines = [line.get_xydata() for line in axes.lines if len(line.get_xdata()) == 2]
    return [(round(float(xy[0, 1])), round(float(xy[0, 0]), 3), round(float(xy[1, 0]), 3)) for xy in lines]


def times(figure):
    return " ".join(t.get_text() for t in figure.axes[1].get_xticklabels())


def test_events_are_drawn_where_they_lie_in_the_stretch(sound):
    p = np.array([[0.9, 0.1]] * 5 + [[0.1, 0.8]] * 5)
    figure = recording_figure(sound, RATE, p, ["dog", "rain"], EVENTS, p_hop=1.0, onset=3720.0, title="a_1.wav")
    assert drawn(figure) == [(0, 0.0, 2.0), (1, 5.0, 6.0)]
    axes = figure.axes[1]
    assert axes.get_title(loc="left") == "a_1.wav"
    np.testing.assert_allclose(axes.images[0].get_array(), p.T)


def test_times_are_those_of_the_recording(sound):
    p = np.zeros((10, 1))
    late = recording_figure(sound, RATE, p, ["dog"], [], p_hop=1.0, onset=3718.5)
    assert times(late) == "1:02:00 1:02:02 1:02:04 1:02:06 1:02:08"
    np.testing.assert_allclose(late.axes[1].get_xticks(), [1.5, 3.5, 5.5, 7.5, 9.5])
    assert late.axes[1].get_xlabel() == "time (h:mm:ss)"
    short = recording_figure(sound[: RATE // 2], RATE, p, ["dog"], [], p_hop=0.05, onset=59.7)
    assert times(short) == "0:59.7 0:59.8 0:59.9 1:00.0 1:00.1 1:00.2"


def test_of_many_classes_the_likeliest_are_shown(sound):
    p = np.tile(np.linspace(0, 1, 40), (10, 1))
    figure = recording_figure(sound, RATE, p, [f"class {c}" for c in range(40)], [], p_hop=1.0, most=3)
    assert [t.get_text() for t in figure.axes[1].get_yticklabels()] == ["class 37", "class 38", "class 39"]


@pytest.mark.parametrize("rate", [1000, 8000, 44100, 192000])
def test_any_rate_can_be_drawn(rate, rng):
    figure = recording_figure(rng.normal(size=rate), rate, [[0.5]], ["dog"], [], p_hop=1.0)
    assert np.isfinite(figure.axes[0].images[0].get_array()).all()


def test_any_name_can_be_drawn(sound, tmp_path):
    figure = recording_figure(sound, RATE, [[0.5]], ["$<b>$ {x"], [], p_hop=1.0, title="$\\frac$.wav")
    png, svg = plots.save(figure, tmp_path / "a")
    assert png.stat().st_size > 1000
    assert "$\\frac$.wav" in svg.read_text()


@pytest.mark.parametrize("length", [3, 30])
def test_a_long_name_leaves_room_for_the_legend(length, sound):
    name = "/".join(f"STATION_{k:02d}" for k in range(length)) + "/20260514_221500_HIGH_GAIN_MONO.flac, 0:55 to 1:10"
    figure = recording_figure(sound, RATE, [[0.5]], ["dog"], [], p_hop=1.0, title=name)
    figure.draw_without_rendering()
    axes = figure.axes[1]
    title = next(t for t in axes.findobj(Text) if "STATION" in t.get_text())
    lines = title.get_text().splitlines()
    assert 2 <= len(lines) <= 4
    assert lines[-1].endswith("0:55 to 1:10")
    box, legend, above = title.get_window_extent(), axes.get_legend().get_window_extent(), figure.axes[0].bbox
    assert box.x1 < legend.x0
    assert box.y1 < above.y0


@pytest.mark.parametrize(
    ("samples", "p", "message"),
    [
        (np.zeros((2, 5)), [[0.5]], r"at least one sample, got an array of shape \(2, 5\)"),
        (np.zeros(0), [[0.5]], "at least one"),
        (np.zeros(RATE), [0.5], r"probabilities: expected \(frames, 1 classes\), got an array of shape \(1,\)"),
        (np.zeros(RATE), np.zeros((0, 1)), "probabilities: expected"),
    ],
)
def test_what_cannot_be_drawn_is_refused(samples, p, message):
    with pytest.raises(DataError, match=message):
        recording_figure(samples, RATE, p, ["dog"], [], p_hop=1.0)


def test_a_rate_of_nothing_is_refused():
    with pytest.raises(ArgumentError, match="rate: expected a sample rate of audio in Hz, got 0"):
        recording_figure(np.zeros(5), 0, [[0.5]], ["dog"], [], p_hop=1.0)
