"""Figures: they show the values given, or those of the operators, and save as PNG and SVG."""

import itertools
import json
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from earmark import plots
from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import curves
from earmark.features import FeatureConfig, mel_matrix
from earmark.formats import read_labels
from earmark.networks import create_network
from earmark.plots import style
from earmark.plots.style import looks
from earmark.pooling import weight_bounds

pytestmark = pytest.mark.usefixtures("drawn_figures")


def texts(axes):
    return [t.get_text() for t in axes.texts]


def test_responsibilities_show_the_pooled_values():
    figure = plots.responsibilities([0.0, 1.0], alpha=2.0)
    assert [a.get_title() for a in figure.axes] == ["max", "mean", "softmax", r"auto, $\alpha$ = 2"]
    assert [texts(a) for a in figure.axes] == [["1.00"], ["0.50"], ["0.73"], ["0.88"]]
    darkness = [[line.get_alpha() for line in a.lines[:2]] for a in figure.axes]
    assert darkness[0] == [0.05, 1.0]  # max: all on one
    assert darkness[1][0] == pytest.approx(darkness[1][1])  # mean: the same for both


def test_weight_bounds_are_the_equations():
    figure = plots.weight_bounds_by_size((2, 100), alphas=(1.0,))
    high, low, mean = figure.axes[0].lines
    m = high.get_xdata()
    np.testing.assert_allclose(high.get_ydata(), weight_bounds(1.0, m)[1])
    np.testing.assert_allclose(low.get_ydata(), weight_bounds(1.0, m)[0])
    np.testing.assert_allclose(mean.get_ydata(), 1 / m)


def test_alpha_against_share_shows_every_class_and_operator():
    figure = plots.alpha_against_share(
        ["shot", "rain"], [0.05, 0.9], {"auto": [4.0, -1.0], "cap": [3.0, 0.0]}, bound=3.2
    )
    (axes,) = figure.axes
    assert texts(axes) == ["shot", "rain"]
    assert [t.get_text() for t in axes.get_legend().get_texts()][1:] == ["bound of CAP", "auto", "cap"]


def test_names_of_classes_with_similar_shares_do_not_overlap():
    labels = [f"class {i}" for i in range(10)]
    shares = [0.04, 0.06, 0.1, 0.17, 0.25, 0.32, 0.59, 0.59, 0.68, 0.77]
    figure = plots.alpha_against_share(labels, shares, {"auto": np.linspace(3, 4, 10)})
    figure.draw_without_rendering()
    names = [text for text in figure.axes[0].texts if text.get_text()]
    assert [name.get_text() for name in names] == labels
    left = np.array([name.get_transform().transform(name.get_position())[0] for name in names])
    between = np.diff(left) * np.sin(np.radians(45))  # of oblique lines of text
    assert between.min() > names[0].get_fontsize() * figure.dpi / 72


def test_save_writes_both_formats(tmp_path):
    files = plots.save(plots.responsibilities(), tmp_path / "a")
    assert [f.name for f in files] == ["a.png", "a.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[1].read_text()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.png", "a.svg"]
    assert plots.save(plots.responsibilities(), tmp_path / "a.png") == files
    files = [plots.save(plots.responsibilities(), tmp_path / name)[0].name for name in ("alpha_0.1", "alpha_0.2")]
    assert files == ["alpha_0.1.png", "alpha_0.2.png"]


def test_words_in_an_svg_are_words_and_its_bytes_are_the_same_every_time(tmp_path):
    first, second = (plots.save(plots.responsibilities(), tmp_path / name)[1].read_bytes() for name in "ab")
    assert first == second
    assert b">softmax</text>" in first


def test_no_two_models_look_alike_and_systems_keep_their_looks():
    nine = looks(["max", "mean", "soft-max", "RAP 1e-2", "RAP 1e-3", "RAP 1e-4", "CAP", "auto", "strong"])
    assert len(set(nine.values())) == 9
    assert looks(["cap"])["cap"] == nine["CAP"]
    assert len({look.colour for look in looks("abcdefgh").values()}) == 8  # colours first, then markers
    assert len(set(looks(map(str, range(40))).values())) == 40
    assert len({look.colour for look in looks(["linear-auto", "linear-RAP", "auto", "CAP"]).values()}) == 4


def rows_of(figure):
    """Names of the rows, from top to bottom, of the first axes."""
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    low, high = figure.axes[0].get_ylim()
    return names[::-1] if low < high else names


def marks(axes):
    """Coordinates of markers by the label of their line."""
    return {line.get_label(): line.get_xydata() for line in axes.lines if line.get_label()[0] != "_"}


def dots(axes):
    return [line for line in axes.lines if line.get_marker() == "." and len(line.get_xdata())]


SOUNDS = [
    ("a.wav", 1.0, 3.0, "dog_bark"),
    ("a.wav", 2.0, 4.0, "dog_bark"),  # together from 1 to 4
    ("a.wav", 6.0, 7.0, "dog_bark"),
    ("b.wav", 0.0, 2.0, "dog_bark"),
    ("b.wav", 0.0, 9.0, "rain"),
    ("b.wav", None, None, "wind"),
]


def test_a_point_of_durations_is_the_time_a_class_is_heard_in_a_clip():
    figure = plots.event_durations(LabelTable(SOUNDS), clip_duration=10.0)
    (axes,) = figure.axes
    assert rows_of(figure) == ["rain", "dog bark", "wind"]
    assert [sorted(line.get_xdata()) for line in dots(axes)] == [[2.0, 4.0], [9.0]]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_linewidth() == 2] == [3.0, 9.0]  # means
    assert texts(axes) == ["0", "2", "1", "clips"]
    assert marks(axes)["10 s"][:, 0].tolist() == [10.0, 10.0]
    assert axes.get_xlim()[1] >= 10.3  # the line is not at the end, where it would look like an axis
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["one clip", "mean", "10 s"]


def test_durations_may_be_on_a_logarithmic_scale():
    assert plots.event_durations(LabelTable(SOUNDS), log=True).axes[0].get_xscale() == "log"


def test_durations_of_the_real_data_sets(shared):
    table = read_labels(shared / "dcase2017_task4" / "groundtruth_strong_label_evaluation_set.csv")
    figure = plots.event_durations(table, clip_duration=10.0)
    top = [name.replace("\n", " ") for name in rows_of(figure)]
    assert len(top) == 17
    assert top.index("Civil defense siren") < top.index("Screaming")
    everything = np.concatenate([line.get_xdata() for line in dots(figure.axes[0])])
    assert everything.max() <= 10.0
    assert np.mean(everything > 9.9) > 0.3  # events often span the entire clip


def without_times(table):
    return table.replace(rows=[row._replace(onset=None, offset=None) for row in table])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: plots.event_durations(without_times(t)), DataError, "expected strong labels, got a table without"),
        (lambda t: plots.event_durations(t, clip_duration=0), ArgumentError, "expected a positive number, got 0"),
    ],
)
def test_durations_refuse_what_means_nothing(call, error, message):
    with pytest.raises(error, match=message):
        call(LabelTable(SOUNDS))


F1 = {"max": {"siren": 0.5, "dog": 0.1}, "strong": {"siren": 0.7, "dog": 0.4}, "mean": {"siren": float("nan")}}


def test_f1_by_class_has_a_dot_for_every_model_and_class():
    figure = plots.f1_by_class(F1)
    (axes,) = figure.axes
    assert rows_of(figure) == ["siren", "dog"]
    drawn = {name: points[:, 0].tolist() for name, points in marks(axes).items()}
    assert drawn["max"] == [0.1, 0.5]
    assert drawn["strong"] == [0.4, 0.7]
    assert np.isnan(drawn["mean"]).all()  # NaN, and missing
    for name, row in itertools.product(("max", "strong"), (0, 1)):
        assert abs(marks(axes)[name][row, 1] - row) < 0.5  # inside its row
    assert axes.get_xlim() == (-0.01, 1.01)  # whole, or small differences would look large


def test_f1_by_class_draws_intervals_behind_their_dots():
    figure = plots.f1_by_class(F1, {"max": {"dog": (0.05, 0.92)}})
    (axes,) = figure.axes
    (bar,) = [line for line in axes.lines if line.get_marker() == "None" and len(line.get_xdata()) == 2]
    assert bar.get_xdata().tolist() == [0.05, 0.92]
    assert bar.get_ydata().tolist() == [marks(axes)["max"][0, 1]] * 2
    assert axes.get_xlabel() == "$F_1$"
    (axes,) = plots.f1_by_class(F1, label="F1 of clips").axes
    assert axes.get_xlabel() == "F1 of clips"


def test_nine_models_and_seventeen_classes_fit_on_a_page(rng):
    models = ["max", "mean", "soft-max", "RAP 1e-2", "RAP 1e-3", "RAP 1e-4", "CAP", "auto", "strong"]
    f1 = {name: {f"a class with a long name {c}": rng.random() for c in range(17)} for name in models}
    figure = plots.f1_by_class(f1)
    width, height = figure.get_size_inches()
    assert width <= 7.2
    assert height <= 9.0
    figure.draw_without_rendering()
    (axes,) = figure.axes
    boxes = [t.get_window_extent() for t in axes.get_yticklabels()]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    lines = np.sort([marks(axes)[name][0, 1] for name in models])
    pixels = axes.transData.transform(np.stack((np.zeros(9), lines), axis=1))[:, 1]
    assert np.diff(pixels).min() * 72 / figure.dpi > 3  # points between lines of a row
    assert figure.legends[0].get_window_extent().ymin > axes.get_window_extent().ymax


ALPHA = {"auto": {"rain": -1.0, "shot": 6.0}, "CAP": {"rain": 0.2, "shot": 3.2}}


def vertical(axes):
    return [
        line.get_xdata()[0] for line in axes.lines if len(line.get_ydata()) == 2 and list(line.get_ydata()) == [0, 1]
    ]


def test_f1_by_clips_has_a_line_of_means_and_a_dot_for_every_run():
    (axes,) = plots.f1_by_clips({"a": {50: [0.4, 0.5], 200: [0.6]}, "b": {200: [0.7, 0.9]}}).axes
    means = {line.get_label(): line.get_xydata().tolist() for line in axes.lines if line.get_linestyle() == "-"}
    assert means == {"a": [[50, pytest.approx(0.45)], [200, 0.6]], "b": [[200, pytest.approx(0.8)]]}
    dots = [line.get_ydata().tolist() for line in axes.lines if line.get_linestyle() == "None"]
    assert dots == [[0.4, 0.5], [0.6], [0.7, 0.9]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["50", "200"]
    assert axes.get_ylim() == (-0.01, 1.01)


def test_learned_alpha_shows_every_class_and_the_bound_of_cap():
    figure = plots.learned_alpha(ALPHA, {"CAP": 3.2})
    (axes,) = figure.axes
    assert rows_of(figure) == ["shot", "rain"]
    assert marks(axes)["auto"][:, 0].tolist() == [-1.0, 6.0]
    assert marks(axes)["CAP"][:, 0].tolist() == [0.2, 3.2]
    assert vertical(axes) == [0, 1, 3.2]
    assert texts(axes) == ["mean", "soft-max"]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["auto", "CAP", "bound of CAP"]
    assert vertical(plots.learned_alpha(ALPHA).axes[0]) == [0, 1]


def test_what_operators_are_at_alpha_0_is_marked():
    (axes,) = plots.learned_alpha(ALPHA, at_zero=["linear soft-max"]).axes
    assert (vertical(axes), texts(axes)) == ([0], ["linear soft-max"])
    (axes,) = plots.learned_alpha(ALPHA, at_zero=["mean", "linear soft-max"]).axes
    assert (vertical(axes), texts(axes)) == ([0, 1], ["mean, linear soft-max", "soft-max"])


def test_a_legend_of_many_long_names_stays_within_the_figure():
    names = [f"linear-RAP 1e-{n}, {network}" for network in ("vgg-gru", "cnn") for n in range(8)]
    figure = plots.learned_alpha({name: {"rain": 0.5, "shot": 3.0} for name in names}, {names[0]: 3.2})
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


def test_the_lower_bound_of_cap_is_drawn_where_alpha_comes_near_it():
    far = {"auto": {"rain": -2.0, "shot": 6.0}, "CAP": {"rain": -1.9, "shot": 3.2}}
    assert vertical(plots.learned_alpha(far, {"CAP": 3.2}).axes[0]) == [0, 1, 3.2, -3.2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.f1_by_class({}), "expected a value of at least one model and class"),
        (lambda: plots.f1_by_class({"max": {"dog": float("nan")}}), "expected a value of at least one model and class"),
        (lambda: plots.f1_by_class(F1, {"maxx": {}}), "model='maxx' is not known; did you mean 'max'"),
        (lambda: plots.learned_alpha({"auto": {}}), "expected a value of at least one model and class"),
        (lambda: plots.learned_alpha(ALPHA, {"cap": 3.2}), "model='cap' is not known; did you mean 'CAP'"),
        (lambda: plots.precision_recall({}), "expected at least one model to draw, got none"),
    ],
)
def test_figures_of_results_refuse_what_means_nothing(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_precision_and_recall_are_those_of_the_curve_with_a_mark_at_the_threshold():
    reference = [("a.wav", 1.0, 3.0, "dog")]
    curve = curves.curve(reference, {"a.wav": [[0.1], [0.9], [0.4], [0.7]]}, hop=1.0)
    (axes,) = plots.precision_recall({"auto": curve}).axes
    colour = looks(["auto"])["auto"].colour
    line, mark = [line for line in axes.lines if line.get_color() == colour and len(line.get_xdata())]
    np.testing.assert_array_equal(line.get_xydata(), np.stack((curve.recall, curve.precision), axis=1))
    assert mark.get_xydata().tolist() == [[0.5, 0.5]]  # 0.9 and 0.7 are called, and one of two is found
    (axes,) = plots.precision_recall({"auto": curve}, {"auto": (1.0, 0.75)}).axes
    marks = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert [mark.get_xydata().tolist() for mark in marks] == [[[0.5, 0.5]], [[1.0, 0.75]]]
    assert [mark.get_markerfacecolor() for mark in marks] == ["white", colour]  # open at 0.5, filled where chosen


CLASSES = ("dog_bark", "rain", "wind")
FEATURES = FeatureConfig(rate=16000, n_fft=1024, hop_samples=800, n_bands=40)  # a hop of 0.05 s
CLIP = [row for row in SOUNDS if row[0] == "b.wav"]


def a_clip(**options):
    given = {"spectrogram": np.zeros((40, 200)), "features": FEATURES, "reference": CLIP, "classes": CLASSES}
    given |= {"probabilities": {"rap": np.tile([0.1, 0.9, 0.3], (200, 1))}}
    return plots.clip_figure(**(given | options))


def panels(figure):
    """Axes that are no colour bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def test_an_excerpt_has_round_times_of_its_recording():
    times = panels(a_clip(onset=25.8))[-1].xaxis
    assert [label.get_text() for label in times.get_ticklabels()] == ["26", "28", "30", "32", "34"]
    np.testing.assert_allclose(times.get_ticklocs(), [0.2, 2.2, 4.2, 6.2, 8.2])
    times = panels(a_clip(onset=100000.8, duration=2.0))[-1].xaxis
    assert [label.get_text() for label in times.get_ticklabels()] == ["100001", "100001.5", "100002", "100002.5"]


def test_a_clip_shows_spectrogram_reference_and_probabilities_over_the_same_time():
    p = np.tile([0.1, 0.9, 0.3], (200, 1))
    sound, truth, rap, most = panels(a_clip(probabilities={"rap": p, "max": p[:100]}))
    assert {axes.get_xlim() for axes in (sound, truth, rap, most)} == {(0.0, 10.0)}
    assert [axes.get_title("left") for axes in (truth, rap, most)] == ["reference", "rap", "max"]
    assert most.get_xlabel() == "time (s)"
    assert sound.images[0].get_array().shape == (40, 200)
    np.testing.assert_array_equal(rap.images[0].get_array(), p.T)  # classes from top to bottom
    assert rap.images[0].get_clim() == (0, 1)
    assert most.images[0].get_extent()[:2] == [0, 5.0]  # frames keep their time
    assert [t.get_text() for t in rap.get_yticklabels()] == ["dog bark", "rain", "wind"]
    bars = [bar.get_paths()[0].get_extents() for bar in truth.collections]
    assert [(bar.x0, bar.x1, round(bar.y0 + bar.y1) // 2) for bar in bars] == [(0, 2, 0), (0, 9, 1), (0, 10, 2)]
    assert [bar.get_hatch() for bar in truth.collections] == [None, None, "////"]  # the last has no times


def test_frequencies_stand_at_their_bands():
    sound = panels(a_clip())[0]
    places = dict(zip([t.get_text() for t in sound.get_yticklabels()], sound.get_yticks(), strict=True))
    assert list(places) == ["4", "2", "1", "0.5", "0.1"]
    tone = np.abs(np.fft.rfft(np.hanning(1024) * np.sin(2 * np.pi * 2000 * np.arange(1024) / 16000))) ** 2
    assert abs(places["2"] - np.argmax(mel_matrix(FEATURES) @ tone)) <= 1


def test_probabilities_have_boxes_for_the_reference_and_lines_for_events():
    events = [Label("b.wav", 1.0, 4.0, "rain", confidence=0.9)]
    rap = panels(a_clip(events={"rap": events}))[2]
    lines = [line.get_xydata().tolist() for line in rap.lines]
    assert [[x for x, _ in line] for line in lines] == [[1.0, 4.0]]
    assert 1 < lines[0][0][1] < 1.5  # at the foot of the row of rain
    assert [t.get_text() for t in rap.get_legend().get_texts()] == ["reference", "events"]


def test_a_detection_has_no_reference_and_may_show_some_classes_only():
    _, rap = panels(a_clip(reference=None, only=["wind", "dog_bark"]))
    np.testing.assert_array_equal(rap.images[0].get_array()[:, 0], [0.3, 0.1])
    assert rap.get_legend() is None
    assert len(panels(a_clip(only=["wind"]))[1].collections) == 1  # of the reference too


def test_a_clip_without_models_shows_what_is_there():
    assert [axes.get_title("left") for axes in panels(a_clip(probabilities={}))] == ["", "reference"]


def test_a_long_recording_is_thinned_without_losing_what_is_short():
    p = np.zeros((20 * 3600 * 4, 3))
    p[123_456, 1] = 0.8
    spectrogram = np.full((40, len(p)), -80.0)
    _, rap = panels(a_clip(spectrogram=spectrogram, reference=None, probabilities={"rap": p}))
    image = rap.images[0].get_array()
    assert image.shape[1] < 1000
    assert image.max() == 0.8
    assert abs(np.argmax(image[1]) / image.shape[1] - 123_456 / len(p)) < 0.002
    assert rap.get_xlabel() == "time (h)"
    assert rap.get_xlim() == (0.0, 4.0)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"spectrogram": np.zeros((64, 200))}, DataError, r"\(40 bands, frames\), got an array of shape \(64, 200\)"),
        ({"probabilities": {"max": np.zeros((9, 2))}}, DataError, r"'max': expected \(frames, 3 classes\).*\(9, 2\)"),
        ({"reference": SOUNDS}, ArgumentError, "reference: expected labels of one clip, got 2 files"),
        ({"reference": [("a", 0, 1, "dog")]}, ArgumentError, "label of the reference='dog' is not known"),
        ({"events": {"rap": [("a", 0, 1, "dog")]}}, ArgumentError, "label of the events of 'rap'='dog' is not known"),
        ({"events": {"rpa": []}}, ArgumentError, "model='rpa' is not known; did you mean 'rap'"),
        ({"only": ["snow"]}, ArgumentError, "class='snow' is not known"),
    ],
)
def test_a_clip_refuses_what_does_not_fit(options, error, message):
    with pytest.raises(error, match=message):
        a_clip(**options)


def test_learning_curves_show_what_the_log_says(tmp_path):
    lines = [
        {"epoch": e, "loss": 1 / e, "alpha": [1 + e, 1 - e], "best": e == 2}
        | {"validation": {"loss": 2 / e, "accuracy": 0.5, "f1": 0.1 * e}}
        for e in (1, 2, 3)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    loss, scores, over_time, kept = plots.learning_curves(log, ["dog", "cat"]).axes
    assert marks(loss)["validation"].tolist() == [[1, 2.0], [2, 1.0], [3, 2 / 3]]
    assert marks(loss)["saved model"][:, 0].tolist() == [2, 2]
    assert marks(scores)["f1"][:, 1].tolist() == pytest.approx([0.1, 0.2, 0.3])
    assert scores.get_ylim() == (-0.01, 1.01)
    assert [line.get_ydata().tolist() for line in over_time.lines[:-1]] == [[0, -1, -2], [2, 3, 4]]
    assert list(over_time.lines[-1].get_xdata()) == [2, 2]
    assert [t.get_text() for t in kept.get_yticklabels()] == ["cat", "dog"]
    assert [bar.get_width() for bar in kept.patches] == [-1, 3]
    assert kept.get_title() == r"$\alpha$ after epoch 2, as saved"
    log.write_text("\n".join(json.dumps({**line, "best": False}) for line in lines))
    *_, kept = plots.learning_curves(log, ["dog", "cat"]).axes
    assert kept.get_title() == r"$\alpha$ after the last epoch"
    assert [bar.get_width() for bar in kept.patches] == [-2, 4]


def test_learning_curves_have_gaps_where_the_log_has_no_number(tmp_path):
    lines = [
        {"epoch": e, "loss": 0.5, "alpha": [1.0, None], "best": e == 2}
        | {"validation": {"loss": None if e == 1 else 0.5, "accuracy": 0.5, "f1": None}}
        for e in (1, 2)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    loss, scores, *_ = plots.learning_curves(log, ["dog", "cat"]).axes
    assert np.isnan(marks(loss)["validation"][:, 1]).tolist() == [True, False]
    assert np.isnan(marks(scores)["f1"][:, 1]).all()


FOREIGN = ["\N{CJK UNIFIED IDEOGRAPH-9E1F} bird", "\N{OWL} owl", "\x1b]0;title\x07", "plain"]


def test_names_in_any_script_are_drawn_without_warnings(tmp_path, monkeypatch):
    monkeypatch.setattr(style, "_has_glyph", lambda char: char.isascii())  # as on a machine with few fonts
    figure = plots.f1_by_class({FOREIGN[0]: dict.fromkeys(FOREIGN, 0.5)})
    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **options: seen.append((options["format"], names_in(self))))
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", DeprecationWarning)  # Matplotlib's own
        plots.save(figure, tmp_path / "figure")
    (_, png), (_, svg) = seen
    assert png == {r"\u9e1f bird", r"\U0001f989 owl", r"\x1b]0;title\x07", "plain"}
    assert svg == {FOREIGN[0], FOREIGN[1], r"\x1b]0;title\x07", "plain"}


def names_in(figure):
    """Names of rows and of the legend."""
    rows = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    return {*rows, *(text.get_text() for text in figure.legends[0].get_texts())}


def test_missing_glyphs_are_silent_and_svg_is_xml(tmp_path):
    with warnings.catch_warnings(action="error"):
        warnings.simplefilter("ignore", DeprecationWarning)
        for path in plots.save(plots.f1_by_class({"model": dict.fromkeys(FOREIGN, 0.5)}), tmp_path / "figure"):
            assert path.stat().st_size > 1000
    content = (tmp_path / "figure.svg").read_bytes()
    ElementTree.fromstring(content)
    assert FOREIGN[0] in content.decode()


def test_each_file_is_drawn_once(tmp_path, monkeypatch):
    """`savefig` draws twice, first to lay out, where a layout engine or its placeholder is left."""
    calls, draw = [], Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda self, renderer: (calls.append(renderer), draw(self, renderer)))
    assert len(plots.save(plots.f1_by_class({"model": {"dog": 0.5}}), tmp_path / "figure")) == len(calls) == 2


def test_a_class_without_clips_is_marked():
    figure = plots.f1_by_class({"a": {"dog": 0.5, "cat": np.nan}, "b": {"dog": 0.7, "cat": np.nan, "owl": 0.2}})
    marks = [(text.get_text(), text.xy[1]) for text in figure.axes[0].texts]
    assert marks == [("no clips", 0)]
    assert figure.axes[0].get_yticklabels()[0].get_text() == "cat"


def test_what_the_layers_of_the_network_do_fits_into_their_boxes():
    figure = plots.network_diagram(create_network("cnn", 128), 431, 10)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    boxes = [box.get_window_extent() for box in axes.patches]
    inside = [text.get_window_extent() for text in axes.texts if text.get_position()[1] == 0.5 and text.get_text()]
    assert len(boxes) == len(inside) == 8
    for box, text in zip(boxes, inside, strict=True):
        assert box.x0 + 2 < text.x0 < text.x1 < box.x1 - 2
        assert box.y0 + 2 < text.y0 < text.y1 < box.y1 - 2


def test_the_network_is_drawn_with_its_true_shapes():
    """Fig. 6."""
    network = create_network("cnn", 128).train()
    figure = plots.network_diagram(network, 431, 10)
    shown = [text.replace("\N{MULTIPLICATION SIGN}", "x") for text in texts(figure.axes[0])]
    shapes = ["128 x 431", "16 x 64 x 215", "32 x 32 x 107", "64 x 16 x 53", "128 x 8 x 26", "256 x 1 x 26", "10 x 26"]
    assert [text for text in shown if " x " in text and "conv" not in text] == shapes
    assert sum("2 x conv 3x3" in text for text in shown) == 4
    assert any("conv 8x1\n256 filters" in text for text in shown)
    assert "ReLU and batch normalisation follow each convolution." in shown
    assert network.training
    narrow = plots.network_diagram(create_network("cnn", 64, reduction=8, width=0.5), 216, 3)
    assert any("64 filters\nmax-pool 2\N{MULTIPLICATION SIGN}1" in text for text in texts(narrow.axes[0]))
    with pytest.raises(ArgumentError, match="expected a CNN, the paper's network, got CRNN"):
        plots.network_diagram(create_network("crnn", 128), 431, 10)
