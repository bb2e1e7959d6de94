"""Figures of a clip, and of an excerpt of a recording: spectrogram, reference or events, and probabilities."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from earmark.annotations import Label
from earmark.encoders.features import Features
from earmark.errors import ArgumentError, DataError
from earmark.evaluation.base import Labels, as_table
from earmark.features import FeatureConfig, LogMel, mel_matrix
from earmark.plots.style import COLOURS, PAGE, STYLE, check_names, name_rows, readable
from earmark.text import as_names, clock_time, printable

Floats = npt.NDArray[np.floating[Any]]

_COLUMNS = 640  # of an image; longer ones are reduced by the maximum, so that no peak is lost
_HERTZ = (100, 200, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
_IMAGE: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest"}
_BOX: dict[str, Any] = {"fc": "none", "ec": COLOURS["orange"], "lw": 1.1, "zorder": 3}
_LINE: dict[str, Any] = {"color": "black", "lw": 1.4, "solid_capstyle": "butt", "zorder": 4}
_UNITS = (("s", 1.0, 180.0), ("min", 60.0, 3 * 3600.0), ("h", 3600.0, math.inf))
_BANDS = (128, 96, 64, 40, 20, 10)  # of a recording's spectrogram: the first that the rate allows
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)  # seconds between ticks
_TICKS = 8  # about
_WIDTH, _LINES = 65, 3  # of a title, in characters and lines, next to the legend


@mpl.rc_context(STYLE)
def clip_figure(
    spectrogram: npt.ArrayLike,
    features: FeatureConfig,
    reference: Labels | None,
    probabilities: Mapping[str, npt.ArrayLike],
    classes: Sequence[str],
    *,
    onset: float = 0.0,
    duration: float | None = None,
    p_hop: float | None = None,
    events: Mapping[str, Labels] | None = None,
    only: Iterable[str] | None = None,
) -> Figure:
    """One clip, as in Fig. 9: mel spectrogram, reference, and probabilities of one or more models on one time axis.

    Boxes in the panels of probabilities are the reference. A class whose times the reference does not give is hatched.

    Parameters
    ----------
    spectrogram : (bands, frames), dB
    features : of the spectrogram
    reference : labels of the clip; None for a figure without this panel
    probabilities : model -> (frames, classes), in [0, 1]
    classes : names of the columns of probabilities
    onset : of an excerpt in its recording, in seconds: the time axis shows times in the recording
    duration, p_hop : of the clip, and between frames of probabilities, in seconds; by default those of the spectrogram
    events : model -> detected events, drawn as black lines under the probabilities
    only : classes to show, in this order; by default all
    """
    x = np.asarray(spectrogram)
    if x.ndim != 2 or len(x) != features.n_bands or not x.shape[1]:
        raise DataError(f"spectrogram: expected ({features.n_bands} bands, frames), got an array of shape {x.shape}")
    classes = as_names(classes)
    shown = classes if only is None else as_names(only)
    check_names("class", shown, classes)
    check_names("model", events or {}, probabilities)
    columns = [classes.index(label) for label in shown]
    values = {name: _probabilities(f"probabilities of {name!r}", p, len(classes)) for name, p in probabilities.items()}
    truth = None if reference is None else _rows_of("reference", reference, classes)
    detected = {name: _rows_of(f"events of {name!r}", rows, classes) for name, rows in (events or {}).items()}
    end = x.shape[1] * features.hop if duration is None else duration
    unit, scale, _ = next(u for u in _UNITS if end <= u[2])
    heights = [1.3] + [0.14 * len(shown) + 0.1] * ((truth is not None) + len(values))
    figure = Figure(figsize=(PAGE * 0.8, sum(heights) + 0.25 * len(heights) + 0.35))
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    _draw_spectrogram(figure, panels[0], x, features, scale)
    if truth is not None:
        _draw_reference(panels[1], truth, shown, scale, end)
    shown_p = list(panels[len(panels) - len(values) :])
    for axes, (name, p) in zip(shown_p, values.items(), strict=True):
        axes.set_title(readable(name, 60), loc="left")
        image = _draw_probabilities(axes, p.T[columns], len(p) * (p_hop or features.hop) / scale, end / scale)
        _draw_boxes(axes, truth or [], detected.get(name, []), shown, scale)
    if values:
        _explain(shown_p[0], bool(truth), bool(detected))
        _colorbar(figure, image, shown_p, "probability")
    for axes in panels[1:]:
        name_rows(axes, shown, 60, fontsize=7)
        axes.invert_yaxis()
    panels[-1].set(xlabel=f"time ({unit})", xlim=(0, end / scale))
    if onset:
        first, last = onset / scale, (onset + end) / scale
        ticks = np.asarray(MaxNLocator(_TICKS, steps=[1, 2, 5, 10]).tick_values(first, last))
        ticks = ticks[(ticks >= first) & (ticks <= last)]
        panels[-1].set_xticks(ticks - first, [f"{tick:.10g}" for tick in ticks])
    return figure


def log_mel(samples: npt.ArrayLike, features: FeatureConfig) -> Floats:
    """Spectrogram of mono audio: (bands, frames), in dB."""
    x = torch.as_tensor(np.asarray(samples, np.float32))
    with torch.inference_mode():
        return np.asarray(LogMel(features)(x[None])[0].numpy())


def within(rows: Iterable[Label], onset: float, offset: float) -> list[Label]:
    """The parts of events between two times, relative to `onset`; rows without times stay as they are."""
    shifted = []
    for row in rows:
        if row.span is None:
            shifted.append(row)
            continue
        first, last = row.span
        if first < offset and last > onset:
            shifted.append(row._replace(onset=max(0.0, first - onset), offset=min(last, offset) - onset))
    return shifted


def _probabilities(what: str, p: npt.ArrayLike, n_classes: int) -> Floats:
    """Check the shape of probabilities: (frames, classes)."""
    values = np.asarray(p)
    if values.ndim != 2 or values.shape[1] != n_classes or not len(values):
        raise DataError(f"{what}: expected (frames, {n_classes} classes), got an array of shape {values.shape}")
    return values


def _rows_of(what: str, labels: Labels, classes: Sequence[str]) -> list[Label]:
    """The positive rows, which must be of one clip and of these classes."""
    table = as_table(labels)
    if len({row.filename for row in table}) > 1:
        raise ArgumentError(f"{what}: expected labels of one clip, got {len(table.filenames)} files; use select()")
    check_names(f"label of the {what}", (row.label for row in table), classes)
    return [row for row in table if row.present]


def _draw_spectrogram(figure: Figure, axes: Axes, x: Floats, features: FeatureConfig, scale: float) -> None:
    span = (0, x.shape[1] * features.hop / scale, -0.5, len(x) - 0.5)
    image = axes.imshow(_thinned(x), cmap="magma", extent=span, origin="lower", **_IMAGE)
    _colorbar(figure, image, [axes], "dB")
    filters = mel_matrix(features)
    bins = np.linspace(0, features.rate / 2, filters.shape[1])
    centres = filters @ bins / filters.sum(axis=1)
    ticks: list[tuple[float, int]] = []
    for f in reversed([f for f in _HERTZ if centres[0] <= f <= centres[-1]]):
        place = float(np.interp(f, centres, np.arange(len(centres))))
        if not ticks or place < ticks[-1][0] - 0.11 * len(x):  # low frequencies are close together
            ticks.append((place, f))
    axes.set_yticks([place for place, _ in ticks], [f"{f / 1000:g}" for _, f in ticks])
    axes.set_ylabel("frequency (kHz)")
    axes.grid(False)
    axes.tick_params(bottom=False)


def _draw_probabilities(axes: Axes, p: Floats, length: float, end: float) -> AxesImage:
    """Draw p (classes, frames), with white lines between classes."""
    span = (0, length, len(p) - 0.5, -0.5)
    image = axes.imshow(_thinned(p), cmap="Blues", vmin=0, vmax=1, extent=span, **_IMAGE)
    axes.hlines(np.arange(len(p)) - 0.5, 0, end, color="white", lw=1.5)
    return image


def _colorbar(figure: Figure, image: AxesImage, axes: list[Axes], label: str) -> None:
    figure.colorbar(image, ax=axes, pad=0.01, fraction=0.03, label=label).outline.set_visible(False)


def _timed(labels: Iterable[Label], shown: Sequence[str], scale: float) -> Iterator[tuple[float, float, int]]:
    """Onset, offset and row of the events with times."""
    for label in labels:
        if label.span is not None and label.label in shown:
            onset, offset = label.span
            yield onset / scale, offset / scale, shown.index(label.label)


def _draw_reference(axes: Axes, truth: list[Label], shown: Sequence[str], scale: float, end: float) -> None:
    axes.set_title("reference", loc="left")
    for onset, offset, row in _timed(truth, shown, scale):
        axes.broken_barh([(onset, offset - onset)], (row - 0.35, 0.7), color=COLOURS["orange"], lw=0)
    hatched: dict[str, Any] = {"fc": "none", "ec": COLOURS["orange"], "hatch": "////", "lw": 0}
    for label in truth:
        if not label.has_times and label.label in shown:
            axes.broken_barh([(0, end / scale)], (shown.index(label.label) - 0.35, 0.7), **hatched)


def _draw_boxes(axes: Axes, truth: list[Label], detected: list[Label], shown: Sequence[str], scale: float) -> None:
    """The reference as boxes, and events as lines at the bottom of a row."""
    for onset, offset, row in _timed(truth, shown, scale):
        axes.broken_barh([(onset, offset - onset)], (row - 0.42, 0.84), **_BOX)
    for onset, offset, row in _timed(detected, shown, scale):
        axes.plot([onset, offset], [row + 0.42] * 2, **_LINE)
    axes.grid(False)


def _explain(axes: Axes, boxes: bool, lines: bool) -> None:
    """A legend for boxes and lines, next to the title."""
    handles: list[Artist] = []
    if boxes:
        handles.append(Patch(label="reference", **_BOX))
    if lines:
        handles.append(Line2D([], [], label="events", **_LINE))
    if handles:
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderpad": 0, "borderaxespad": 0.4}
        axes.legend(handles=handles, ncols=2, handlelength=1.5, columnspacing=1.2, **place)


def _thinned(x: Floats) -> Floats:
    """(rows, frames), reduced to at most `_COLUMNS` frames by their maximum."""
    if x.shape[1] <= _COLUMNS:
        return x
    edges = np.linspace(0, x.shape[1], _COLUMNS, endpoint=False).astype(int)
    return np.asarray(np.maximum.reduceat(x, edges, axis=1))


def recording_figure(
    samples: npt.ArrayLike,
    rate: int,
    probabilities: npt.ArrayLike,
    classes: Sequence[str],
    events: Iterable[Label],
    *,
    p_hop: float,
    onset: float = 0.0,
    title: str = "",
    most: int = 15,
) -> Figure:
    """An excerpt of a recording: mel spectrogram, probabilities, and events as lines under them.

    The time axis shows times in the recording, as h:mm:ss from one hour on.

    Parameters
    ----------
    samples : (samples,), of the excerpt
    probabilities : (frames, classes), in [0, 1]; the first frame begins with the excerpt
    events : of the recording; those outside the excerpt are ignored
    p_hop : seconds between frames of probabilities
    onset : of the excerpt in the recording, in seconds
    most : number of classes shown, those with the highest probabilities
    """
    x = np.asarray(samples, np.float32)
    p = _probabilities("probabilities", probabilities, len(classes))
    if x.ndim != 1 or not len(x):
        raise DataError(f"samples: expected one dimension and at least one sample, got an array of shape {x.shape}")
    config = _display_config(rate)
    duration = len(x) / rate
    shown = np.sort(np.argsort(-p.max(axis=0), kind="stable")[:most])
    with mpl.rc_context({**STYLE, "text.parse_math": False}):  # class names may contain anything
        name = "probabilities"
        figure = clip_figure(
            log_mel(x, config),
            config,
            None,
            {name: p},
            classes,
            duration=duration,
            p_hop=p_hop,
            events={name: within(events, onset, onset + duration)},
            only=[classes[c] for c in shown],
        )
        figure.set_size_inches(PAGE, figure.get_figheight())
        _name_times(figure, onset, duration, title or name)
    return figure


def spectrogram_config(features: Features) -> FeatureConfig:
    """The features themselves, or those of a spectrogram for display if they are the embeddings of an encoder."""
    return features if isinstance(features, FeatureConfig) else _display_config(features.rate)


def _display_config(rate: int) -> FeatureConfig:
    """Features for display: as many mel bands as the rate allows."""
    n_fft = 2048 if rate >= 16000 else 512
    for bands in _BANDS:
        try:
            return FeatureConfig(rate=rate, n_fft=n_fft, hop_samples=n_fft // 2, n_bands=bands)
        except ArgumentError:  # some bands would be empty
            continue
    raise ArgumentError(f"rate: expected a sample rate of audio in Hz, got {rate}")


def _name_times(figure: Figure, onset: float, duration: float, title: str) -> None:
    """Set ticks at round times of the recording, and the title, in lines that leave room for the legend."""
    axes = next(a for a in figure.axes if a.get_xlabel().startswith("time"))
    scale = duration / axes.get_xlim()[1]
    step = next((s for s in _STEPS if duration / s <= _TICKS), duration / _TICKS)
    times = np.arange(np.ceil(onset / step - 1e-9), np.floor((onset + duration) / step + 1e-9) + 1) * step
    has_hours = onset + duration >= 3600
    names = [clock_time(t, digits=1 if step < 1 else 0, hours=has_hours) for t in times]
    axes.set_xticks((times - onset) / scale, names)
    if len(title) > _LINES * _WIDTH:  # deep paths: the end is the most informative part
        title = title[: _WIDTH - 1] + "…" + title[-(_LINES - 1) * _WIDTH :]
    axes.set_title(textwrap.fill(printable(title), _WIDTH, break_on_hyphens=False), loc="left")
    axes.set_xlabel(f"time ({'h:mm:ss' if has_hours else 'm:ss'})")
