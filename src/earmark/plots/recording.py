"""The figure of an excerpt of a recording: spectrogram, likelihoods of a model, and detected events."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from earmark.annotations import Label
from earmark.errors import ArgumentError, DataError
from earmark.features import FeatureConfig
from earmark.plots.clip import clip_figure, likelihood_array, log_mel, within
from earmark.plots.style import PAGE, STYLE

_BANDS = (128, 96, 64, 40, 20, 10)  # the first that the rate allows is used
_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)  # seconds between ticks
_TICKS = 8  # about
_WIDTH, _LINES = 65, 3  # of a title, in characters and lines, beside the legend


def recording_figure(
    samples: npt.ArrayLike,
    rate: int,
    likelihoods: npt.ArrayLike,
    classes: Sequence[str],
    events: Iterable[Label],
    *,
    p_hop: float,
    onset: float = 0.0,
    title: str = "",
    most: int = 15,
) -> Figure:
    """An excerpt of a recording: mel spectrogram, likelihoods, and events as lines under them.

    The time axis shows times in the recording, as h:mm:ss from one hour on.

    Parameters
    ----------
    samples : (samples,), of the excerpt
    likelihoods : (frames, classes), in [0, 1]; the first frame begins with the excerpt
    events : of the recording; those outside the excerpt are ignored
    p_hop : seconds between frames of likelihoods
    onset : of the excerpt in the recording, in seconds
    most : number of classes shown, those with the highest likelihoods
    """
    x, p = np.asarray(samples, np.float32), likelihood_array("likelihoods", likelihoods, len(classes))
    if x.ndim != 1 or not len(x):
        raise DataError(f"samples: expected one dimension and at least one sample, got an array of shape {x.shape}")
    config = _spectrogram_config(rate)
    duration = len(x) / rate
    shown = np.sort(np.argsort(-p.max(axis=0), kind="stable")[:most])
    with mpl.rc_context({**STYLE, "text.parse_math": False}):  # class names may contain anything
        name = "likelihoods"
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


def clock_time(time: float, *, digits: int = 0, hours: bool = True) -> str:
    """A time as h:mm:ss, or as m:ss without hours.

    >>> clock_time(3723.46), clock_time(83.46, digits=1, hours=False)
    ('1:02:03', '1:23.5')
    """
    units = round(time * 10**digits)
    seconds, rest = divmod(units, 10**digits)
    minutes, seconds = divmod(seconds, 60)
    text = f"{minutes // 60}:{minutes % 60:02d}" if hours else str(minutes)
    return f"{text}:{seconds:02d}" + (f".{rest:0{digits}d}" if digits else "")


def _spectrogram_config(rate: int) -> FeatureConfig:
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
    axes.set_title(textwrap.fill(title, _WIDTH, break_on_hyphens=False), loc="left")
    axes.set_xlabel(f"time ({'h:mm:ss' if has_hours else 'm:ss'})")
