"""The result of an evaluation: scores and the counts behind them, in memory or in a folder.

    print(evaluation); evaluation.dynamic.overall.f1; evaluation.to_pandas(); evaluation.to_dict()
    evaluation.save(folder); Evaluation.load(folder)        to compare and report without model and audio

A folder holds

    scores.json         every score, what was evaluated and how, notes
    events.tsv          the detected events
    counts.npz          counts clip by clip: `static`, `pooled`, `dynamic`, `event`, each with `.tp`, `.fp`, ...
    probabilities.npz   frame probabilities of all clips, one after the other, in single precision: half precision
                        would round probabilities close to 1 to 1

Each file is written atomically. `scores.json` is removed first and written last: if it exists, the other files belong
to it. Undefined ratios are null in the file and NaN in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from earmark.annotations import LabelTable
from earmark.arrays import write_arrays
from earmark.audio import AnyPath
from earmark.counts import HEADINGS, Counts, Ratios, Scores, score_columns, score_table, score_text
from earmark.errors import ArgumentError, DataError, EarmarkError
from earmark.evaluation.saved import KINDS, read_counts, read_recordings, read_scores_file
from earmark.files import json_text, make_folder
from earmark.formats import read_labels, write_labels
from earmark.formats.text import write_text
from earmark.inference.scores import RecordingScores
from earmark.ownership import owned
from earmark.schema import load_toml
from earmark.tables import Table, import_pandas
from earmark.text import counted, duration_text

if TYPE_CHECKING:
    import pandas

FILES = ("scores.json", "events.tsv", "counts.npz", "probabilities.npz")


@dataclass(eq=False)
class Evaluation:
    """The quality of a detector, or of events from another program.

    Attributes
    ----------
    scores
        The contents of `scores.json`, with NaN for undefined numbers.
    static_counts, pooled_counts, dynamic_counts, event_counts
        The counts of `maximum`, `pooled`, `dynamic` and `event`, clip by clip.
    """

    scores: dict[str, Any] = field(repr=False)
    static_counts: Counts = field(repr=False)
    pooled_counts: Counts | None = field(default=None, repr=False)
    dynamic_counts: Counts | None = field(default=None, repr=False)
    event_counts: Counts | None = field(default=None, repr=False)
    _folder: Path | None = None
    _estimate: LabelTable | None = field(default=None, repr=False)
    _recordings: Sequence[RecordingScores] = field(default=(), repr=False)

    def __fspath__(self) -> str:
        return str(self.folder)

    @property
    def is_saved(self) -> bool:
        """Whether it has a folder."""
        return self._folder is not None

    @property
    def folder(self) -> Path:
        """Where it is saved; raises an error if it is not."""
        if self._folder is None:
            raise ArgumentError(f"{self.name}: this evaluation is not saved; save it to a folder first")
        return self._folder

    @property
    def maximum(self) -> Scores:
        """Clip-based scores by the maximum over frames, Eq. (3), at the decoder's threshold.

        For events from another program, a class is in a clip if one of its events is.
        """
        return _scores(self.scores["static"]["maximum"])

    @property
    def pooled(self) -> Scores | None:
        """Clip-based scores by the pooled output, at 0.5; None without such an output."""
        return self.scores["static"]["pooled"] and _scores(self.scores["static"]["pooled"])

    @property
    def dynamic(self) -> Scores | None:
        """Segment-based scores; None if the reference has no times."""
        return self.scores["dynamic"] and _scores(self.scores["dynamic"])

    @property
    def event(self) -> Scores | None:
        """Event-based scores, within 200 ms or a fifth of an event's length; None if the reference has no times."""
        return self.scores["event"] and _scores(self.scores["event"])

    @property
    def psds(self) -> dict[str, float] | None:
        """`psds1` and `psds2`, DCASE's two scenarios; None unless requested."""
        psds: dict[str, float] | None = self.scores["psds"]
        return psds

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95% bootstrap intervals: {"dynamic.f1": (low, high), ...}.

        They are over clips, or over blocks of time of a few long clips; NaN where a single clip leaves them undefined.
        """
        return {name: (low, high) for name, (low, high) in self.scores["intervals"].items()}

    @property
    def notes(self) -> list[str]:
        """Cautions about the scores, one sentence each."""
        return list(self.scores.get("notes") or ())

    @property
    def name(self) -> str:
        """The folder, or else the model or file of events, for messages."""
        return str(self._folder or self.scores.get("model") or self.scores.get("events") or "evaluation")

    @property
    def config(self) -> Path | None:
        """The configuration file of its run, next to it or one folder up; None if there is none."""
        if self._folder is None:
            return None
        places = (self._folder / "config.toml", self._folder.parent / "config.toml")
        return next((place for place in places if place.is_file()), None)

    @property
    def pool(self) -> str | None:
        """Name of the pooling operator of its run; None if its settings are unknown."""
        with suppress(EarmarkError):  # unreadable settings
            pool = self.run_settings().get("pool", {})
            return str(pool["name"]) if isinstance(pool, Mapping) and "name" in pool else None
        return None

    def run_settings(self) -> Mapping[str, Any]:
        """The settings of its run, by section, from its configuration file or its scores; empty if unknown."""
        return (load_toml("settings", self.config, "recipes") if self.config else self.scores.get("config")) or {}

    def estimate(self) -> LabelTable:
        """The detected events."""
        if self._estimate is not None:
            return self._estimate
        events = read_labels(self.folder / "events.tsv", "tsv")
        return LabelTable(events, filenames=self.static_counts.filenames, classes=self.static_counts.classes)

    def probabilities(self) -> dict[str, RecordingScores]:
        """Frame probabilities by file name; empty if events from another program were evaluated."""
        if self._recordings or self._folder is None:
            return {recording.filename: recording for recording in self._recordings}
        path = self.folder / "probabilities.npz"
        if not path.exists():
            return {}
        return read_recordings(path, self.scores, self.static_counts)

    def save(self, folder: AnyPath, *, force: bool | None = None) -> None:
        """Write the files that the top of this module lists.

        Those of an earlier evaluation are replaced; others with these names are not, unless `force` is true.
        """
        folder = make_folder(Path(folder))
        counts = _counts_to_arrays(self)  # first, as it may fail: then an earlier evaluation stays
        text = json_text(self.scores, indent=1)
        estimate, recordings = self.estimate(), tuple(self.probabilities().values())
        with owned(folder, files=[folder / name for name in FILES], force=force) as owner:
            owner.remove(folder / "scores.json")
            write_labels(estimate, folder / "events.tsv", "tsv")
            write_arrays(folder / "counts.npz", counts)
            if recordings:
                write_arrays(folder / "probabilities.npz", _recordings_to_arrays(recordings))
            else:
                owner.remove(folder / "probabilities.npz")  # of an earlier evaluation
            write_text(folder / "scores.json", text)
        self._folder = folder

    @classmethod
    def load(cls, folder: AnyPath) -> Evaluation:
        """Read what `save` wrote, which is what `earmark evaluate` leaves in a run folder."""
        folder = Path(folder)
        path = folder / "scores.json"
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; expected a run, or a folder of earmark evaluate --out")
        if (folder / "ledger.sqlite").is_file() and not path.is_file():
            what = "contains detected events, not an evaluation"
            raise DataError(f"{folder} {what}; a report on them is written by earmark detect ... --report")
        if not path.is_file() or not (folder / "counts.npz").is_file():
            raise DataError(
                f"{folder}: not evaluated yet; run: earmark evaluate {folder} DATA, or pass the folder of its --out"
            )
        scores = read_scores_file(path)
        counts = {f"{kind}_counts": part for kind, part in read_counts(folder / "counts.npz", scores).items()}
        return cls(scores, _folder=folder, **counts)  # type: ignore[arg-type]

    def __str__(self) -> str:
        notes = [f"Note: {note}" for note in self.notes]
        return "\n".join([self._heading(), *notes, str(self.table()), *self._lines()])

    def _repr_html_(self) -> str:
        return str(self.table(caption=self._heading(), note=" ".join(f"{line}." for line in self._lines())).to_html())

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, as in `scores.json`."""
        return self.scores

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a row per class, and the rows `macro` and `micro`."""
        frame: pandas.DataFrame = import_pandas().DataFrame.from_dict(self._rows(), orient="index")
        return frame.rename_axis("class")

    def table(self, caption: str = "", note: str = "") -> Table:
        """Clips and segments, a row per class, and the averages."""
        groups = {"static": "clips", "dynamic": f"{self.scores['segment']:g}-s segments"}
        columns = {f"{kind}_{name}": c for kind, group in groups.items() for name, c in score_columns(group).items()}
        del columns["static_error_rate"]
        return score_table(columns, self._rows(), caption, note)

    def _rows(self) -> dict[str, dict[str, float]]:
        """Numbers of tables: a row per class and average, and in each `static_f1`, `dynamic_recall`, ..."""
        labels = (*self.static_counts.classes, "macro", "micro")
        rows: dict[str, dict[str, float]] = {label: {} for label in labels}
        # a single clip has no clip-based scores: they would be 0 or 1
        static = self.scores["static"]["maximum"] if len(self.static_counts.filenames) > 1 else None
        kinds = {"static": static, "dynamic": self.scores["dynamic"], "event": self.scores["event"]}
        for kind, part in kinds.items():
            names = [name for name in HEADINGS if (kind, name) != ("static", "error_rate")]
            ratios = {} if part is None else {"macro": part["macro"], "micro": part["overall"], **part["per_class"]}
            for label in labels:
                values = ratios.get(label, {})
                rows[label] |= {f"{kind}_{name}": values.get(name, math.nan) for name in names}
        return rows

    def _heading(self) -> str:
        split = self.scores.get("split")
        clips = counted(len(self.static_counts.filenames), "clip")
        return f"{clips} of split {split}" if split and split != "all" else clips

    def _lines(self) -> list[str]:
        """Scores beyond those of the table, as sentences."""
        lines, event = [], self.event
        if event is not None:
            overall = event.overall
            lines.append(
                f"Events within 0.2 s or a fifth of their length: F1 {score_text(overall.f1)} "
                f"(macro {score_text(event.macro.f1)}), error rate {score_text(overall.error_rate)}"
            )
        if self.psds is not None:
            lines.append(
                f"PSDS: {score_text(self.psds['psds1'])} (first setting), {score_text(self.psds['psds2'])} (second)"
            )
        low, high = self.intervals.get("dynamic.f1", (math.nan, math.nan))
        if math.isfinite(low):
            block = self.scores.get("interval_block")
            unit = f"blocks of {duration_text(block)}" if block else "clips"
            lines.append(f"Segment F1, 95% interval over {unit}: {low:.3f} to {high:.3f}")
        if tuned_on := (self.scores["decoder"] or {}).get("tuned_on"):
            lines.append(f"Thresholds tuned on {tuned_on}")
        return lines


def _scores(values: Mapping[str, Any]) -> Scores:
    """The inverse of `Scores.to_dict`."""
    per_class = {label: Ratios(**row) for label, row in values["per_class"].items()}
    return Scores(Ratios(**values["overall"]), Ratios(**values["macro"]), per_class)


def _counts_to_arrays(evaluation: Evaluation) -> dict[str, npt.NDArray[Any]]:
    first = evaluation.static_counts
    arrays: dict[str, npt.NDArray[Any]] = {"filenames": np.array(first.filenames), "classes": np.array(first.classes)}
    for kind in KINDS:
        counts: Counts | None = getattr(evaluation, f"{kind}_counts")
        if counts is None:
            continue
        if counts.filenames != first.filenames or counts.classes != first.classes:
            raise DataError(f"{kind} and static counts are not of the same clips; list all clips in the reference")
        for name, value in counts.arrays().items():
            arrays[f"{kind}.{name}"] = value.astype(np.min_scalar_type(value.max(initial=0)))  # the smallest type
    return arrays


def _recordings_to_arrays(recordings: Sequence[RecordingScores]) -> dict[str, npt.NDArray[Any]]:
    without = np.full(len(recordings[0].classes), np.nan, np.float32)
    pooled = [without if recording.pooled is None else recording.pooled for recording in recordings]
    return {
        "filenames": np.array([recording.filename for recording in recordings]),
        "classes": np.array(recordings[0].classes),
        "p": np.concatenate([recording.p for recording in recordings]).astype(np.float32),
        "starts": np.concatenate([[0], np.cumsum([len(recording.p) for recording in recordings])]),
        "frames": np.array([recording.frames for recording in recordings]),
        "durations": np.array([recording.duration for recording in recordings]),
        "pooled": np.stack(pooled).astype(np.float32),
    }
