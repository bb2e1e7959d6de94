"""What reports need from evaluated runs: records, labels, F1 by class, alpha read as a duration, probabilities."""

import math
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from earmark.annotations import LabelTable
from earmark.checkpoint import read_model_info
from earmark.counts import Counts, ratio
from earmark.datasets import Collection, is_published, open_data, path_of
from earmark.errors import EarmarkError
from earmark.evaluation.base import Floats
from earmark.evaluation.references import read_reference
from earmark.evaluation.result import Evaluation
from earmark.evaluation.statistics import Interval, bootstrap
from earmark.evaluation.systems import System
from earmark.events import Decoder
from earmark.fine_tuning import network_for
from earmark.pooling import AdaptiveLinearPool, alpha_family
from earmark.settings import WITHOUT_TIMES, Settings
from earmark.tables import Cell, Column, Table, number_cell
from earmark.text import percent

_DEFAULTS = {"reference": "data", "segment": 1.0, "align": "middle"}  # of `earmark evaluate`


@dataclass(frozen=True)
class EvaluatedRun:
    """An evaluated run with its records."""

    saved: Evaluation
    system: str
    """Name of the system that the run is one seed of."""
    config: str
    """Text of its config.toml; empty if missing."""
    about: Mapping[str, Any]
    """Metadata of its model file; empty if missing."""

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Where the weights come from."""
        return dict(self.about.get("provenance", {}))

    @property
    def data_name(self) -> str:
        """Short name of the training data."""
        source = str(self.provenance.get("data_source", ""))
        name, colon, _ = source.partition(":")
        return name if colon and is_published(source) else path_of(source).name

    @property
    def is_weak(self) -> bool:
        """Whether it was trained without event times."""
        try:
            return tomllib.loads(self.config)["training"]["supervision"] in WITHOUT_TIMES
        except (ValueError, LookupError, TypeError, RecursionError):
            return True


def read_run(saved: Evaluation, system: str) -> EvaluatedRun:
    """Read the configuration and the model's metadata, from the evaluation's folder or from the model's."""
    local = saved.folder / "model.safetensors"
    config = ""
    about: dict[str, Any] = {}
    for model in (local, Path(saved.scores.get("model") or local)):
        path = model.with_name("config.toml")
        if not config and path.is_file():
            config = path.read_text(encoding="utf-8", errors="replace")
        if not about and model.is_file():
            with suppress(EarmarkError):  # a report of scores is possible without
                about = read_model_info(model)
    return EvaluatedRun(saved, system, config, about)


def true_labels(saved: Evaluation, data: str) -> tuple[Collection, LabelTable]:
    """The evaluated data set, and the labels of its evaluated clips: those of the reference file, if there was one.

    Where the reference was that of the paper's authors, these are the labels of the data set.
    """
    kind = str(saved.scores.get("reference", "data"))
    file = None if kind in ("data", "authors") else kind
    collection = open_data(data, saved.scores.get("split"), needs_labels=file is None)
    clips, classes = saved.static_counts.filenames, saved.scores["classes"]
    return collection, read_reference(file, collection.labels, clips, classes, separator=collection.separator).table


def commands(runs: Sequence[EvaluatedRun], out: Path) -> list[str]:
    """The commands that reproduce the report."""
    folders = [str(run.saved.folder) for run in runs]
    lines = [str(run.provenance["command"]) for run in runs if "command" in run.provenance]
    lines += [_evaluate_command(run) for run in runs if run.saved.scores.get("model")]
    if len(runs) > 1:
        lines.append(shlex.join(["earmark", "compare", *folders]))
    return [*lines, shlex.join(["earmark", "report", *folders, "--out", str(out)])]


def _evaluate_command(run: EvaluatedRun) -> str:
    saved, scores = run.saved, run.saved.scores
    model = Path(scores["model"])
    is_beside = model.parent == saved.folder
    options = {name: scores.get(name) for name in ("split", "reference", "segment", "align")}
    defaults = {**_DEFAULTS, **Decoder().to_dict(), **(run.about.get("decoder") or {})}
    decoder = {**(scores.get("decoder") or {}), "tuned_on": None}
    options |= {name: value for name, value in decoder.items() if not isinstance(value, list)}  # lists are tuned
    options["tune_on"] = scores.get("tune_on")
    words = ["earmark", "evaluate", str(saved.folder if is_beside else model), str(scores["data"])]
    for name, value in options.items():
        if value is not None and value != defaults.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    if scores.get("tune") == "decoder":
        words += ["--tune", "decoder"]
    if scores.get("psds"):
        words.append("--psds")
    return shlex.join(words if is_beside else [*words, "--out", str(saved.folder)])


def class_f1(entry: System, *, level: float = 0.95) -> Interval[Floats]:
    """F1 of each class, (classes,), with a bootstrap interval over clips; the mean over seeds.

    F1 of segments, or of clips if the reference has no times.
    """
    first, *others = entry.counts("dynamic_counts") or entry.counts("static_counts")
    seeds = [first, *(counts.in_order_of(first) for counts in others)]
    f1 = ratio("f1", "per_class", entry.evaluations[0].scores["convention"])

    def mean_f1(weights: Floats) -> Floats:
        return np.asarray(np.mean([f1(counts, weights) for counts in seeds], axis=0))

    return bootstrap(mean_f1, len(first.filenames), level=level)


def learned_alphas(entries: Sequence[System]) -> dict[str, dict[str, float]]:
    """Learned alpha by system and class, the mean over seeds; only systems that have one."""
    alphas = {}
    for entry in entries:
        seeds = [saved.scores.get("alpha") for saved in entry.evaluations]
        if all(seeds):
            mean = np.mean(np.array(seeds, float), axis=0)
            alphas[entry.name] = dict(zip(entry.evaluations[0].scores["classes"], mean.tolist(), strict=True))
    return alphas


def at_zero(entries: Sequence[System]) -> list[str]:
    """What the operators with an alpha are at alpha = 0, for a figure of all of them."""
    families = [alpha_family(entry.evaluations[0].pool) for entry in entries if learned_alphas([entry])]
    return list(dict.fromkeys(family.at_zero for family in families if family))


def required_shares(entries: Sequence[System]) -> dict[str, dict[str, float]]:
    """Share of a clip that must be active to make it positive, by system and class, for systems with a learned alpha.

    NaN for an operator whose alpha has another meaning.
    """
    shares = {}
    for entry in entries:
        family = alpha_family(entry.evaluations[0].pool)
        for name, alphas in learned_alphas([entry]).items():
            shares[name] = {c: float(family.active_share(alpha)) if family else math.nan for c, alpha in alphas.items()}
    return shares


class FrameSize(NamedTuple):
    """Size of an output frame, in seconds and as a share of a clip: the shortest activity that a model can require."""

    seconds: float
    share: float


def frame_sizes(entries: Sequence[System]) -> dict[str, FrameSize]:
    """Mean size of the output frames of each system, in the evaluated clips or, without these, in training patches."""
    sizes = {}
    for entry in entries:
        saved = entry.evaluations[0]
        clips = [(clip.duration, len(clip.p)) for clip in saved.probabilities().values()]
        if not clips:
            with suppress(EarmarkError):  # settings of another version
                if config := saved.run_settings():
                    settings = Settings.from_dict(config)
                    clips = [(settings.training.patch, bag_frames(settings))]
        if clips:
            each = [(duration / frames, 1 / frames) for duration, frames in clips]
            sizes[entry.name] = FrameSize(*np.mean(each, axis=0).tolist())
    return sizes


def bag_frames(settings: Settings) -> int:
    """Output frames of a training patch."""
    with torch.device("meta"):  # only the reduction is needed: allocates no weights
        network = network_for(settings.features, settings.network)
    return settings.features.frames(round(settings.training.patch * settings.features.rate)) // network.reduction


def active_shares(labels: LabelTable, durations: Mapping[str, float]) -> dict[str, tuple[float, float]]:
    """How long each class is active in the clips that contain it, on average: seconds, and share of the clip.

    >>> table = LabelTable([("a.wav", 0, 1, "dog"), ("a.wav", 0.5, 2, "dog"), ("b.wav", 1, 2, "dog")])
    >>> active_shares(table, {"a.wav": 10.0, "b.wav": 10.0})
    {'dog': (1.5, 0.15)}
    """
    active = {}
    for label, times in labels.active_times().items():
        seconds = {name: min(time, durations[name]) for name, time in times.items() if name in durations}
        shares = [time / durations[name] for name, time in seconds.items()]
        if shares:
            active[label] = round(float(np.mean([*seconds.values()])), 6), round(float(np.mean(shares)), 6)
    return active


def dense_probabilities(saved: Evaluation) -> dict[str, npt.NDArray[np.floating[Any]]]:
    """Probabilities at the rate of the features, {file: (frames, classes)}; empty if none were saved."""
    return {name: clip.dense(saved.scores["grid"]["align"]) for name, clip in saved.probabilities().items()}


def class_table(scores: Mapping[str, Interval[Floats]], counts: Counts, score: str) -> Table:
    """F1 of each class for each system, and the number of clips that contain it; the best of a row is bold.

    `counts` are static counts of any of the systems; `score` is the name of the score, for headings.
    """
    columns = [Column("class", is_text=True), Column("clips"), *(Column(name, score) for name in scores)]
    rows = []
    for c, (label, clips) in enumerate(zip(counts.classes, counts.n_ref.sum(0).tolist(), strict=True)):
        cells = [number_cell(float(f1.value[c]), (float(f1.low[c]), float(f1.high[c]))) for f1 in scores.values()]
        best = max((cell.value for cell in cells if cell.value is not None), default=None)
        if best is not None and len(cells) > 1:
            cells = [replace(cell, best=cell.value == best) for cell in cells]
        rows.append([Cell(label), Cell(f"{clips:,}", clips), *cells])
    note = "Clips: number of clips that contain the class." + (" Bold: best of the row." if len(scores) > 1 else "")
    return Table(columns, rows, f"{score} by class", note)


def alpha_table(
    alphas: Mapping[str, Mapping[str, float]],
    shares: Mapping[str, Mapping[str, float]],
    activity: Mapping[str, tuple[float, float]],
    at_zero: Sequence[str],
    classes: Sequence[str],
    frames: Mapping[str, FrameSize],
) -> Table:
    """Learned alpha of each class and the activity that it requires, next to the activity in the reference.

    Parameters
    ----------
    alphas : system -> class -> alpha
    shares : system -> class -> share of the clip that alpha requires, NaN if not known
    activity : class -> (seconds, share of the clip), where known
    at_zero : what the operators are at alpha = 0, for the note
    frames : system -> size of an output frame, where known
    """
    columns = [Column("class", is_text=True)]
    if activity:
        columns += [Column("seconds", "active, on average"), Column("of the clip", "active, on average")]
    for name in alphas:
        columns += [Column("alpha", name), Column("needs", name)]
    rows = []
    for label in classes:
        cells = [Cell(label)]
        if activity:
            seconds, active = activity.get(label, (math.nan, math.nan))
            cells.append(Cell(f"{seconds:.2f}", seconds) if label in activity else number_cell(None))
            cells.append(replace(number_cell(active), text=percent(active)))
        for name, values in alphas.items():
            share, frame = shares[name][label], frames.get(name)
            cells.append(Cell(f"{values[label]:.2f}", values[label]))
            needed = max(share, frame.share) if frame else share  # NaN stays NaN
            cells.append(replace(number_cell(needed), text=required_activity(share, frame)))
        rows.append(cells)
    note = "Needs: share of a clip that must certainly be active for the clip to count as containing the class"
    note += "; values in seconds are one output frame, the minimum." if frames else "."
    if AdaptiveLinearPool.at_zero in at_zero:
        note += " For linear-auto, linear-CAP and linear-RAP: the share that is enough whatever the rest is."
    return Table(columns, rows, "Alpha read as a duration", note)


def required_activity(share: float, frame: FrameSize | None = None) -> str:
    """How much of a clip must be active: a share, or one output frame where the share is smaller than that.

    >>> required_activity(0.142, FrameSize(0.37, 0.037)), required_activity(1e-4, FrameSize(0.37, 0.037))
    ('14%', '0.4 s')
    >>> required_activity(1e-4, FrameSize(0.023, 0.0023)), required_activity(math.nan)
    ('0.02 s', '–')
    """
    if frame is None or not share <= frame.share:
        return percent(share)
    return f"{frame.seconds:.{1 if frame.seconds >= 0.1 else 2}f} s"
