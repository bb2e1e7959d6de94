"""Figures, one function each: those of the paper, and what training and judging need besides; all in one style.

A function draws on a new figure and returns it; `save` writes it as PNG and SVG. Colours are Okabe and Ito's, which
colour-blind readers can tell apart, and markers differ too; sizes are those of a two-column page, so that text prints
at the size it was set in.

Files, each importing only those before it: `style` (colours, sizes, `save`), `pooling` (Fig. 1 and Fig. 2), `training`
(curves of a run), `data` (durations of events), `scores` (per class: F1 and alpha; precision and recall), `clip` (one
clip: spectrogram, reference, likelihoods), `recording` (the same of a stretch of a recording, with events), `tuning`
(trials of a search).
"""

from earmark.plots.clip import clip_figure
from earmark.plots.data import event_durations
from earmark.plots.pooling import alpha_against_share, responsibilities, weight_bounds_by_size
from earmark.plots.recording import recording_figure
from earmark.plots.scores import f1_by_class, learned_alpha, precision_recall
from earmark.plots.style import COLOURS, STYLE, save
from earmark.plots.training import learning_curves
from earmark.plots.tuning import tuning_figure

__all__ = [
    "COLOURS",
    "STYLE",
    "alpha_against_share",
    "clip_figure",
    "event_durations",
    "f1_by_class",
    "learned_alpha",
    "learning_curves",
    "precision_recall",
    "recording_figure",
    "responsibilities",
    "save",
    "tuning_figure",
    "weight_bounds_by_size",
]
