"""Choosing lambda, threshold and resolution on strongly labelled validation data, as the paper advises.

    result = tune(open_data("recordings"), load_recipe("quick"), Path("tuned"), cache=Path("cache"), trials=12)
    result.best.values, result.tied

Each trial is a run: trained on the clips of split `train`, evaluated on segments of those of split `validate`, whose
labels need times. Clips of split `test` are never opened. The first trials are fixed, beginning with the paper's three
lambdas; then Optuna proposes values, which depend only on the results so far and the seed. Each proposal is saved
before it is trained, so a search may be killed at any moment: called again, it resumes the unfinished run, with the
same result.

    search.json         what is searched for, and the trials
    trials/NAME/        the run of each trial, with its scores
    trials.csv          the trials as a table
    config.toml         settings of the best one
    model.safetensors   its model
    decoder.json        its threshold, if that was searched for; for `earmark detect --thresholds`

The last four are written when the search is finished.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, Strict

from earmark.annotations import LabelTable
from earmark.audio import AnyPath
from earmark.counts import Counts, ratio
from earmark.datasets import Collection
from earmark.detection.detector import load
from earmark.encoders.features import trains_encoder
from earmark.errors import ArgumentError, DataError, MissingExtraError, TrainingError, unknown_name
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores, segment_curve
from earmark.evaluation.statistics import compare_systems
from earmark.evaluation.thresholds import THRESHOLDS
from earmark.events import Decoder
from earmark.files import json_text, locked, make_folder, written_whole
from earmark.formats.spreadsheets import write_rows
from earmark.formats.text import write_text
from earmark.networks import NETWORKS, create_network
from earmark.ownership import owned
from earmark.pooling import POOLS
from earmark.progress import OnNote, OnProgress, ignore_note, ignore_progress
from earmark.schema import Number, differences, parse, read_json, record
from earmark.settings import Settings
from earmark.tables import Cell, Column, Table
from earmark.text import as_names, counted
from earmark.training.run import data_fingerprint, make_fabric, run, split_for_training

__all__ = ["SEARCHES", "Trial", "Tuned", "tune"]

SEARCHES = {
    "penalty": "lambda of RAP, from 1e-5 to 1e-1, by its logarithm",
    "reduction": "feature frames per output frame: 2, 4, 8 or 16",
    "threshold": "one for all classes, from 0.05 to 0.95: the best of each trial, without retraining",
}
_SECTIONS = {"penalty": "pool", "reduction": "network"}  # of the settings that need training
_PENALTIES = (1e-3, 1e-2, 1e-4, 1e-5, 1e-1)  # tried first, the paper's three before the others
_REDUCTIONS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Trial:
    """One trial: its values by setting, with the threshold if that was searched for, and the folder of its run.

    `f1` is that of 1-s segments of the validation clips, all classes together; `interval` is its bootstrap interval
    (95%) over clips.
    """

    number: int
    values: Mapping[str, float]
    f1: float
    interval: tuple[float, float]
    folder: Path

    @property
    def name(self) -> str:
        """Its values as text, such as "lambda 0.001, reduction 8"."""
        return _describe(self.values)

    @property
    def score(self) -> str:
        """F1 with its interval."""
        low, high = self.interval
        return f"{self.f1:.3f} ({low:.3f} to {high:.3f})"


@dataclass(frozen=True)
class Tuned:
    """The result of a search: finished trials, and the values that could not be trained, with the reason.

    `best` has the highest F1, and `tied` are trials that the validation clips (`clips` in number) do not distinguish
    from it (`earmark.evaluation.statistics.compare_systems`). Each was trained once, so the variance of training is not
    in this test. A search that was interrupted is not `is_finished`, and nothing has been compared.
    """

    trials: tuple[Trial, ...]
    failed: Mapping[str, str]
    best: Trial | None = None
    tied: tuple[Trial, ...] = ()
    clips: int = 0
    is_finished: bool = False

    def __str__(self) -> str:
        best = self.best
        if best is None:
            return f"{counted(len(self.trials), 'trial')} done, not compared yet"
        headings = ("trial", *map(_setting_name, best.values), "F1", "95% interval", "")
        rows = []
        for trial in sorted(self.trials, key=lambda trial: -trial.f1):
            low, high = trial.interval
            values = (f"{value:g}" for value in trial.values.values())
            verdict = self.verdict(trial).replace("worse", "")
            rows.append([str(trial.number), *values, f"{trial.f1:.3f}", f"{low:.3f} to {high:.3f}", verdict])
        columns = [Column(heading, is_text=not heading) for heading in headings]
        table = Table(columns, [[Cell(text) for text in row] for row in rows])
        lines = [f"Best: {best.name}; F1 of 1-s segments {best.score} on {counted(self.clips, 'validation clip')}"]
        if len(self.trials) > 1:
            lines.append(self._comparison())
        return "\n".join([str(table), *lines, *(f"Could not be trained: {name}" for name in self.failed)])

    def verdict(self, trial: Trial) -> str:
        """One of "best", "tied" and "worse"."""
        if trial is self.best:
            return "best"
        return "tied" if trial in self.tied else "worse"

    def _comparison(self) -> str:
        others = len(self.trials) - 1
        chance = "Each was trained once: another seed may change their order."
        if not self.tied:
            return f"On these clips all others are worse. {chance}"
        tied = f"{len(self.tied)} of {others} other trials" if others > 1 else "the other trial"
        return f"These clips do not distinguish it from {tied} (tied). {chance}"

    def to_dict(self) -> dict[str, Any]:
        """As plain values; trials by number."""
        return {
            "is_finished": self.is_finished,
            "clips": self.clips,
            "trials": [{**vars(t), "values": dict(t.values), "folder": str(t.folder)} for t in self.trials],
            "failed": dict(self.failed),
            "best": self.best and self.best.number,
            "tied": [trial.number for trial in self.tied],
        }


def tune(
    data: Collection,
    settings: Settings,
    out: AnyPath,
    *,
    cache: AnyPath,
    trials: int = 10,
    search: Sequence[str] = ("penalty",),
    provenance: Mapping[str, Any] | None = None,
    on_trial: Callable[[Trial, int], None] = lambda trial, trials: None,
    on_progress: OnProgress = ignore_progress,
    on_note: OnNote = ignore_note,
) -> Tuned:
    """Search for the values that give the best segments on the validation clips.

    Parameters
    ----------
    settings
        Of all trials, except for what is searched for.
    trials
        How many in all, including those of earlier calls and those that failed. A search for the reduction alone ends
        when all were tried.
    search
        Some of `SEARCHES`.
    on_trial
        Called with each finished trial, and the number of trials.

    See `earmark.training.run.run` for the rest; `on_note` is also called with trials that failed.
    """
    out, cache, search = Path(out), Path(cache), as_names(search)
    names = _check(settings, trials, search)
    usable = data.select(clip.filename for clip in data.clips if clip.split != "test")
    _, validation, _ = split_for_training(usable)
    _check_times(validation.labels)
    provenance = provenance or {}
    source = str(provenance.get("data_source", "data"))
    with locked(make_folder(out)), owned(out):
        log = _Record(out, settings, search, data_fingerprint(usable))
        if names == ["reduction"]:
            trials = min(trials, len(_reductions(settings)))
        on_run_note = on_note
        while log.n_done < trials:
            values = log.begin(lambda: _propose(log.finished, log.n_done, settings, names))
            folder, changed = log.folder(values), _changed(settings, values)
            about = {**provenance, "tuning": values}
            try:
                is_finished = _train(usable, changed, folder, cache, about, on_progress, on_run_note)
            except TrainingError as error:  # it would fail again, so continue with the others
                log.end({"failed": str(error)})
                on_note(f"{_describe(values)}: {error}")
            else:
                if not is_finished:
                    return Tuned(log.finished, log.failed)
                log.end(_evaluate(folder, validation, source, "threshold" in search))
                on_trial(log.finished[-1], trials)
            on_run_note = ignore_note  # notes on the data are the same for all trials
        if not log.finished:
            raise TrainingError(f"no trial could be trained; the first: {next(iter(log.failed.values()))}")
        return _conclude(log, settings)


def _train(
    data: Collection,
    settings: Settings,
    folder: Path,
    cache: Path,
    provenance: dict[str, Any],
    on_progress: OnProgress,
    on_note: OnNote,
) -> bool:
    """Train a trial, or resume it; returns whether it was finished."""
    try:
        result = run(
            data,
            settings,
            folder,
            cache=cache,
            fabric=make_fabric(settings),
            resume=True,
            provenance=provenance,
            on_progress=on_progress,
            on_note=on_note,
        )
    except KeyboardInterrupt:  # while features were computed
        return False
    return result.is_finished


def _describe(values: Mapping[str, float]) -> str:
    return ", ".join(f"{_setting_name(name)} {value:g}" for name, value in values.items())


def _setting_name(name: str) -> str:
    return "lambda" if name == "penalty" else name


def _check(settings: Settings, trials: int, search: Sequence[str]) -> list[str]:
    """The searched settings that need training; raises an error for what cannot be searched for."""
    if trials < 1:
        raise ArgumentError(f"trials: expected at least 1, got {trials}")
    for name in search:
        if name not in SEARCHES:
            raise unknown_name("search", name, SEARCHES)
    names = [name for name in _SECTIONS if name in search]
    if not names:
        raise ArgumentError(
            "nothing to train for: search for penalty or reduction, with or without threshold; thresholds alone are "
            "tuned by earmark evaluate --tune-on validate"
        )
    if "penalty" in names:
        pool = settings.pool["name"]
        if (supervision := settings.training.supervision) in ("strong", "propagated"):
            raise ArgumentError(
                f"{supervision} supervision does not use the pool, so there is no penalty to search for"
            )
        if "penalty" not in POOLS[pool].options():
            raise ArgumentError(f"pool {pool!r} has no penalty to search for; choose pool rap, or search for reduction")
    network = settings.network["name"]
    if "reduction" in names and "reduction" not in NETWORKS[network].options():
        raise ArgumentError(f"network {network!r} has no reduction to search for; choose network cnn, crnn or vgg-gru")
    try:
        import optuna  # noqa: F401  # fail now, not after an hour of training
    except ImportError as error:
        raise MissingExtraError("earmark tune", "tune") from error
    return names


def _check_times(labels: LabelTable) -> None:
    if not any(row.has_times for row in labels):
        raise DataError(
            "tuning evaluates when sounds happen, and no validation clip has times: give clips of split validate "
            "labels with onset and offset"
        )


@record
class _Values:
    penalty: float = Field(default=0.0, ge=0)
    reduction: Literal[1, 2, 4, 8, 16] = 1


@record
class _SavedTrial:
    """A trial in `search.json`: the values tried, and the outcome, if it is finished."""

    values: _Values
    f1: float = Field(default=0.0, ge=0, le=1)
    interval: Annotated[tuple[Number, Number], Strict(False)] = (None, None)
    chosen: dict[Literal["threshold"], Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    failed: str = ""


@record
class _Search:
    about: dict[str, Any]
    trials: list[_SavedTrial]


class _Record:
    """The contents of `search.json`: what is searched for, and the trials, the last of which may be unfinished."""

    def __init__(self, out: Path, settings: Settings, search: Sequence[str], data: str) -> None:
        about: dict[str, Any] = settings.to_dict()
        for name, section in _SECTIONS.items():
            if name in search:
                about[section].pop(name, None)
        about = {"search": [name for name in SEARCHES if name in search], "data": data, **about}
        self.out, self._path = out, out / "search.json"
        self._about: dict[str, Any] = json.loads(json_text(about))  # as it is read back
        self._trials: list[dict[str, Any]] = []
        if self._path.exists():
            self._load()
        elif (out / "last.ckpt").exists() or (out / "model.safetensors").exists():
            raise ArgumentError(f"{out} contains a run; choose another folder for the search")

    def _load(self) -> None:
        saved = read_json(dict[str, Any], self._path)
        parse(_Search, saved, where=self._path)
        about, self._trials = saved["about"], saved["trials"]
        if about != self._about:
            raise ArgumentError(
                f"{self.out} contains another search: {_difference(about, self._about)}; "
                "choose another folder, or search as before"
            )
        names = [name for name in _SECTIONS if name in about["search"]]
        for number, trial in enumerate(self._trials):
            is_done = "failed" in trial or {"f1", "interval", "chosen"} <= trial.keys()
            if set(trial["values"]) != set(names) or not (is_done or number == len(self._trials) - 1):
                raise DataError(f"{self._path}: trials[{number}]: expected a finished trial of {' and '.join(names)}")

    @property
    def n_done(self) -> int:
        """Number of trials that are finished or failed."""
        return sum("f1" in trial or "failed" in trial for trial in self._trials)

    @property
    def failed(self) -> dict[str, str]:
        """Values that could not be trained, and why."""
        return {_describe(trial["values"]): trial["failed"] for trial in self._trials if "failed" in trial}

    @property
    def finished(self) -> tuple[Trial, ...]:
        """Trials that were evaluated, in their order."""
        trials = []
        for number, trial in enumerate(self._trials, 1):
            if "f1" in trial:
                low, high = (np.nan if bound is None else bound for bound in trial["interval"])
                values = {**trial["values"], **trial["chosen"]}
                trials.append(Trial(number, values, trial["f1"], (low, high), self.folder(trial["values"])))
        return tuple(trials)

    def folder(self, values: Mapping[str, float]) -> Path:
        """The run of a trial."""
        return self.out / "trials" / "-".join(f"{name}-{value:g}" for name, value in values.items())

    def begin(self, propose: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The values of the unfinished trial, or of a new one."""
        if self.n_done == len(self._trials):
            self._trials.append({"values": propose()})
            self._save()
        values: dict[str, float] = self._trials[-1]["values"]
        return values

    def end(self, outcome: dict[str, Any]) -> None:
        """Add the outcome of the unfinished trial."""
        self._trials[-1] |= outcome
        self._save()

    def _save(self) -> None:
        write_text(self._path, json_text({"about": self._about, "trials": self._trials}, indent=1))


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first difference between two searches."""
    name, (old, new) = next(iter(differences(before, now).items()))
    if name == "data":
        return "its clips or labels have changed"
    return f"{name} was {json.dumps(old)}, now {json.dumps(new)}"


def _reductions(settings: Settings) -> list[int]:
    """Reductions to try, that of the settings first."""
    first = create_network(n_bands=settings.features.n_bands, **settings.network).reduction
    most = 8 if trains_encoder(settings.features) else 16  # with an encoder, of pairs of frames
    return list(dict.fromkeys([first, *(n for n in reversed(_REDUCTIONS) if n <= most)]))


def _propose(done: Sequence[Trial], n_done: int, settings: Settings, names: Sequence[str]) -> dict[str, float]:
    """Values to try next, after the trials that are finished or failed."""
    reductions = _reductions(settings)
    if n_done < (len(_PENALTIES) if "penalty" in names else len(reductions)):
        first = {"penalty": _PENALTIES[n_done % len(_PENALTIES)], "reduction": reductions[n_done % len(reductions)]}
        return {name: first[name] for name in names}
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    known = {
        "penalty": FloatDistribution(min(_PENALTIES), max(_PENALTIES), log=True),
        "reduction": CategoricalDistribution(sorted(reductions)),
    }
    ranges = {name: known[name] for name in names}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        # A new study for each trial, so that an interrupted search proposes the same values.
        sampler = optuna.samplers.TPESampler(seed=1000 * settings.training.seed + n_done, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in done:
            tried = {name: trial.values[name] for name in names}
            study.add_trial(optuna.trial.create_trial(params=tried, distributions=ranges, value=trial.f1))
        chosen = study.ask(ranges).params
    finally:
        optuna.logging.set_verbosity(verbosity)
    return {name: int(value) if name == "reduction" else float(f"{value:.3g}") for name, value in chosen.items()}


def _changed(settings: Settings, values: Mapping[str, float]) -> Settings:
    return settings.changed({f"{_SECTIONS[k]}.{k}": str(v) for k, v in values.items() if k in _SECTIONS})


def _evaluate(folder: Path, validation: Collection, source: str, with_threshold: bool) -> dict[str, Any]:
    """Segment-based F1 on the validation clips, its interval, and the chosen threshold."""
    detector = load(folder, pooled=True)
    clips, skipped = detector.score_clips(validation.clips)
    reference = validation.labels.select(clip.filename for clip in clips).replace(classes=detector.classes)
    _check_times(reference)
    about: dict[str, Any] = {
        "model": str(folder / "model.safetensors"),
        "data": source,
        "split": "validate",
        "align": "middle",
        "threshold": 0.5,
        "skipped": skipped,
        "alpha": detector.alpha,
    }
    evaluation = evaluate_scores(clips, reference, about=about)
    chosen = {}
    if with_threshold:
        curve = segment_curve(evaluation, reference)
        f1 = {threshold: curve.f1[curve.at(threshold)] for threshold in THRESHOLDS}
        chosen["threshold"] = max(f1, key=lambda t: (round(f1[t], 12), -abs(t - 0.5)))  # of equals, the closest to 0.5
        digest = evaluation.scores["reference_fingerprint"]
        tuned_on = f"{source}, validate: {counted(len(clips), 'clip')} (labels {digest}), by F1 of 1-s segments"
        options = EvaluationOptions(decoder=Decoder(threshold=chosen["threshold"], tuned_on=tuned_on))
        evaluation = evaluate_scores(clips, reference, options, about={**about, **chosen})
    evaluation.save(folder)
    assert evaluation.dynamic is not None
    f1_of_all = float(np.nan_to_num(evaluation.dynamic.overall.f1))
    return {"f1": f1_of_all, "interval": evaluation.scores["intervals"]["dynamic.f1"], "chosen": chosen}


def _conclude(log: _Record, settings: Settings) -> Tuned:
    """Compare the trials, and write the files of a finished search."""
    trials, out = log.finished, log.out
    best = max(trials, key=lambda trial: trial.f1)
    counts: dict[str, list[Counts]] = {}
    for trial in trials:
        segments = Evaluation.load(trial.folder).dynamic_counts
        if segments is None:
            raise DataError(f"{trial.folder}: expected counts of segments, got none; delete this trial to run it again")
        counts[str(trial.number)] = [segments]
    verdicts = compare_systems(counts, str(best.number), ratio("f1"))
    names = {verdict.names[1] for verdict in verdicts if not verdict.is_different}
    tied = tuple(trial for trial in trials if str(trial.number) in names)
    n_clips = len(counts[str(best.number)][0].filenames)
    tuned = Tuned(trials, log.failed, best, tied, n_clips, is_finished=True)
    _write_table(tuned, out / "trials.csv")
    write_text(out / "config.toml", _changed(settings, best.values).to_toml())
    with written_whole(out / "model.safetensors") as draft:
        shutil.copyfile(best.folder / "model.safetensors", draft)
    if "threshold" in best.values:
        decoder = Evaluation.load(best.folder).scores["decoder"]
        write_text(out / "decoder.json", json_text({"decoder": decoder}, indent=1))
    return tuned


def _write_table(tuned: Tuned, path: Path) -> None:
    rows: list[list[object]] = [["trial", *tuned.trials[0].values, "f1", "low", "high", "verdict", "folder"]]
    for trial in tuned.trials:
        numbers = (f"{number:.6f}" for number in (trial.f1, *trial.interval))
        folder = f"trials/{trial.folder.name}"
        rows.append([trial.number, *trial.values.values(), *numbers, tuned.verdict(trial), folder])
    with written_whole(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, rows)
