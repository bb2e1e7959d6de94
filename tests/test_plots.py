"""Figures: what they show is what the operators say, and they save as PNG and SVG."""

import numpy as np
import pytest

from earmark import plots
from earmark.pooling import weight_bounds


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
    assert [t.get_text() for t in axes.get_legend().get_texts()][1:] == ["bound of cap", "auto", "cap"]


def test_save_writes_both_formats(tmp_path):
    files = plots.save(plots.responsibilities(), tmp_path / "a")
    assert [f.name for f in files] == ["a.png", "a.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[1].read_text()
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.png", "a.svg"]
