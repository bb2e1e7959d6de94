"""Figures in one style: those of the paper, and those of training, evaluation, detection and tuning.

Each function draws one new figure and returns it; `save` writes it as PNG and SVG. Colours are the colour-blind-safe
palette of Okabe and Ito, and markers differ too. Sizes are those of a two-column page, so that text prints at its
nominal size.
"""

from earmark.plots.clip import clip_figure, recording_figure
from earmark.plots.network import network_diagram
from earmark.plots.pooling import alpha_against_share, responsibilities, weight_bounds_by_size
from earmark.plots.scores import (
    EVALUATION_FIGURES,
    evaluation_figures,
    event_durations,
    f1_by_class,
    f1_by_clips,
    learned_alpha,
    precision_recall,
)
from earmark.plots.style import COLOURS, STYLE, draw, save
from earmark.plots.training import learning_curves, tuning_figure

__all__ = [
    "COLOURS",
    "EVALUATION_FIGURES",
    "STYLE",
    "alpha_against_share",
    "clip_figure",
    "draw",
    "evaluation_figures",
    "event_durations",
    "f1_by_class",
    "f1_by_clips",
    "learned_alpha",
    "learning_curves",
    "network_diagram",
    "precision_recall",
    "recording_figure",
    "responsibilities",
    "save",
    "tuning_figure",
    "weight_bounds_by_size",
]
