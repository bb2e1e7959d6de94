"""Numbers of a page of runs beyond those of the comparison, and their tables: classes, and alpha read as a duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from earmark.annotations import LabelTable
from earmark.counts import Counts, ratio
from earmark.errors import EarmarkError
from earmark.evaluation.comparison import Entry
from earmark.evaluation.result import Evaluation
from earmark.evaluation.statistics import Interval, bootstrap
from earmark.networks import create_network
from earmark.pooling.bounds import alpha_to_active_share
from earmark.report.tables import Cell, Column, Table, number_cell
from earmark.report.words import Moment, needed, percent
from earmark.settings import Settings, load_recipe

__all__ = [
    "alpha_table",
    "bag_frames",
    "class_f1",
    "class_table",
    "dense_probabilities",
    "heard_shares",
    "learned_alphas",
    "moments",
]

Floats = npt.NDArray[np.float64]

_STEP = 0.01  # seconds, to which heard time is counted


def class_f1(entry: Entry, *, level: float = 0.95) -> Interval:
    """F1 of each class, (classes,), with a bootstrap interval over clips; of several seeds the mean.

    Segments decide, or clips where the reference has no times.
    """
    seeds = [_same_clips(entry.evaluations[0], own) for own in entry.evaluations]

    def mean_f1(_: Counts, weights: Floats) -> Floats:
        return np.asarray(np.mean([ratio("f1", "per_class")(counts, weights) for counts in seeds], axis=0))

    return bootstrap(seeds[0], mean_f1, level=level)


def _same_clips(first: Evaluation, own: Evaluation) -> Counts:
    """What decides, with clips in the order of the first."""
    ours, theirs = (s.static_counts if s.dynamic_counts is None else s.dynamic_counts for s in (first, own))
    if ours.filenames == theirs.filenames:
        return theirs
    place = {name: i for i, name in enumerate(theirs.filenames)}
    return theirs.select([place[name] for name in ours.filenames])


def class_table(scores: Mapping[str, Interval], counts: Counts, what: str) -> Table:
    """F1 of each class for each model, and how many clips have it; the best of a row is bold.

    Parameters
    ----------
    scores : model -> from `class_f1`
    counts
        Static ones, of any of the models.
    what
        The score, as a heading.
    """
    columns = [Column("class", is_text=True), Column("clips"), *(Column(name, what) for name in scores)]
    rows = []
    for c, (label, clips) in enumerate(zip(counts.classes, counts.n_ref.sum(0).tolist(), strict=True)):
        cells = [number_cell(float(own.value[c]), (float(own.low[c]), float(own.high[c]))) for own in scores.values()]
        best = max((cell.value for cell in cells if cell.value is not None), default=None) if len(cells) > 1 else None
        marked = [replace(cell, best=best is not None and cell.value == best) for cell in cells]
        rows.append((Cell(label), Cell(f"{clips:,}", clips), *marked))
    note = "Clips are those that have the class." + (" The best of a row is bold." if len(scores) > 1 else "")
    return Table(tuple(columns), tuple(rows), f"{what}, class by class", note)


def learned_alphas(entries: Sequence[Entry]) -> dict[str, dict[str, float]]:
    """Alpha that each model learned for each class, for those that have one; of several seeds the mean."""
    found = {}
    for entry in entries:
        own = [saved.scores.get("alpha") for saved in entry.evaluations]
        if all(own):
            mean = np.mean(np.array(own, float), axis=0)
            found[entry.name] = dict(zip(entry.evaluations[0].scores["classes"], mean.tolist(), strict=True))
    return found


def moments(entries: Sequence[Entry]) -> dict[str, Moment]:
    """One output frame of each model, by the clips it was judged on, or else by the patches it learned from."""
    found = {}
    for entry in entries:
        saved = entry.evaluations[0]
        clips = [(own.duration, len(own.p)) for own in saved.probabilities().values()]
        if not clips and saved.config is not None:
            with suppress(EarmarkError):  # of another version
                settings = load_recipe(saved.config)
                clips = [(settings.training.patch, bag_frames(settings))]
        if clips:
            seconds, share = np.mean([(duration / frames, 1 / frames) for duration, frames in clips], axis=0).tolist()
            found[entry.name] = Moment(seconds, share)
    return found


def bag_frames(settings: Settings) -> int:
    """Output frames of a patch, as training draws them."""
    options = dict(settings.network)
    with torch.device("meta"):  # no weights are drawn: only its reduction is asked for
        network = create_network(options.pop("name"), settings.features.n_bands, **options)
    return settings.features.frames(round(settings.training.patch * settings.features.rate)) // network.reduction


def heard_shares(labels: LabelTable, durations: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """For how long each class is heard in a clip that has it, on average: seconds, and share of the clip.

    >>> table = LabelTable([("a.wav", 0, 1, "dog"), ("a.wav", 0.5, 2, "dog"), ("b.wav", 1, 2, "dog")])
    >>> heard_shares(table, {"a.wav": 10.0, "b.wav": 10.0})
    {'dog': (1.5, 0.15)}
    """
    found: dict[str, list[tuple[float, float]]] = {label: [] for label in labels.classes}
    for name, duration in durations.items():
        frames = max(1, round(duration / _STEP))
        share = labels.frame_targets(name, frames, duration / frames).mean(0, dtype=np.float64)
        for label, part in zip(labels.classes, share.tolist(), strict=True):
            if part > 0:  # neither absent nor, NaN, without times
                found[label].append((part * duration, part))
    means = {label: np.mean(own, axis=0).round(6).tolist() for label, own in found.items() if own}
    return {label: (seconds, share) for label, (seconds, share) in means.items()}


def alpha_table(
    alphas: Mapping[str, Mapping[str, float]],
    heard: Mapping[str, tuple[float, float]],
    classes: Sequence[str],
    moments: Mapping[str, Moment],
) -> Table:
    """Alpha of each class, the share of a clip that it asks for, and beside them for how long the class is heard."""
    columns = [Column("class", is_text=True)]
    if heard:
        columns += [Column("seconds", "heard, on average"), Column("of the clip", "heard, on average")]
    for name in alphas:
        columns += [Column("alpha", name), Column("needs", name)]
    rows = []
    for label in classes:
        cells = [Cell(label)]
        if heard:
            seconds, share = heard.get(label, (np.nan, np.nan))
            cells += [Cell(f"{seconds:.2f}", seconds) if label in heard else number_cell(None), _share_cell(share)]
        for name, own in alphas.items():
            cells += [Cell(f"{own[label]:.2f}", own[label]), _needs_cell(own[label], moments.get(name))]
        rows.append(tuple(cells))
    note = (
        "Needs: the share of a clip for which a sound must be there, and certain, before the clip counts as having it"
        f"{'; seconds are one frame of the output, the least that there is.' if moments else '.'}"
    )
    return Table(tuple(columns), tuple(rows), "Alpha read as a duration", note)


def _needs_cell(alpha: float, moment: Moment | None) -> Cell:
    share = float(alpha_to_active_share(alpha))
    return Cell(needed(alpha, moment), share if moment is None else max(share, moment.share))


def _share_cell(share: float) -> Cell:
    return Cell(percent(share), share if np.isfinite(share) else None)


def dense_probabilities(saved: Evaluation) -> dict[str, npt.NDArray[np.floating]]:
    """Kept probabilities at the rate of the features: {file: (frames, classes)}; empty where none were kept."""
    return {name: own.dense(saved.scores["grid"]["align"]) for name, own in saved.probabilities().items()}
