"""The paper's closing advice: choose lambda on strongly labelled validation data.

    found = tune(open_data("recordings"), load_recipe("quick"), Path("tuned"), cache=Path("cache"), trials=12)
    found.best.values, found.tied

Each trial is a run: trained on the clips of split `train`, judged by the segments of those of split `validate`, which
must say when sounds happen. Clips of split `test` are never opened. The first trials are fixed, the paper's three
lambdas before all; from then on Optuna chooses, from what the trials so far gave and the seed alone. What was chosen is
written down before it is tried. So a search may be killed at any moment: called again, it goes on with the run it was
in, and ends as if nothing had happened.

    search.json         what is searched for, and the trials
    trials/NAME/        the run of each trial, with its scores
    trials.csv          the trials as a table
    config.toml         settings of the best one
    model.safetensors   its model
    decoder.json        its threshold, where that was searched for; for `earmark detect --thresholds`

The last four are written when the search is over.
"""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from earmark.annotations import LabelTable
from earmark.counts import Counts
from earmark.datasets import Collection
from earmark.detection.detector import load
from earmark.errors import ArgumentError, DataError, MissingExtraError, TrainingError, unknown_name
from earmark.evaluation.result import Evaluation
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores, segment_curve
from earmark.evaluation.statistics import compare_models
from earmark.events import Decoder
from earmark.files import json_text, make_folder, written_whole
from earmark.pooling import POOLS
from earmark.progress import OnProgress
from earmark.settings import Settings
from earmark.tables import Cell, Column, Table
from earmark.text import counted
from earmark.training.run import data_fingerprint, make_fabric, run, split_for_training

__all__ = ["SEARCHES", "Trial", "Tuned", "tune"]

SEARCHES = {
    "penalty": "lambda of RAP, from 1e-5 to 1e-1, by its logarithm",
    "reduction": "feature frames per output frame: 2, 4, 8 or 16",
    "threshold": "one for all classes, from 0.05 to 0.95: the best of each trial, without training again",
}
_SECTIONS = {"penalty": "pool", "reduction": "network"}  # where the knobs that need training are
_PENALTIES = (1e-3, 1e-2, 1e-4, 1e-5, 1e-1)  # the first to be tried; the paper's come first
_REDUCTIONS = (2, 4, 8, 16)
_THRESHOLDS = tuple(round(0.05 * i, 2) for i in range(1, 20))


@dataclass(frozen=True)
class Trial:
    """One try.

    Attributes
    ----------
    values
        What was tried, by knob; with the threshold, where that was searched for.
    f1, interval
        Of 1-s segments of the validation clips, all classes together, and its bootstrap interval (95 %) over clips.
    folder
        Its run.
    """

    number: int
    values: Mapping[str, float]
    f1: float
    interval: tuple[float, float]
    folder: Path

    @property
    def name(self) -> str:
        """What was tried, in words.

        >>> Trial(1, {"penalty": 0.001, "reduction": 8}, 0.5, (0.4, 0.6), Path("a")).name
        'lambda 0.001, reduction 8'
        """
        return _in_words(self.values)

    @property
    def score(self) -> str:
        """F1 with its interval."""
        low, high = self.interval
        return f"{self.f1:.3f} ({low:.3f} to {high:.3f})"


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes
    ----------
    trials
        Those that are over.
    failed
        What was tried and could not be trained, and why.
    best
        The one with the highest F1; None where none is over.
    tied
        Those that the validation clips cannot tell from it: the paired test of
        `earmark.evaluation.statistics.compare_models`. It knows nothing of luck in training: each was trained once.
    clips
        So many were judged.
    is_finished
        False if it was interrupted and can be called again. Then nothing has been compared.
    """

    trials: tuple[Trial, ...]
    failed: Mapping[str, str]
    best: Trial | None
    tied: tuple[Trial, ...]
    clips: int
    is_finished: bool

    def __str__(self) -> str:
        best = self.best
        if best is None:
            return f"{counted(len(self.trials), 'trial')} done, not compared yet"
        knobs = ("lambda" if knob == "penalty" else knob for knob in best.values)
        headings = ("trial", *knobs, "F1", "95 % interval", "")
        rows = []
        for trial in sorted(self.trials, key=lambda trial: -trial.f1):
            low, high = trial.interval
            verdict = "best" if trial is best else "tied" if trial in self.tied else ""
            values = (f"{value:g}" for value in trial.values.values())
            rows.append([str(trial.number), *values, f"{trial.f1:.3f}", f"{low:.3f} to {high:.3f}", verdict])
        columns = [Column(heading, is_text=not heading) for heading in headings]
        table = Table(columns, [[Cell(text) for text in row] for row in rows])
        lines = [f"Best: {best.name}; F1 of 1-s segments {best.score} on {counted(self.clips, 'validation clip')}"]
        if len(self.trials) > 1:
            lines.append(self._comparison())
        return "\n".join([str(table), *lines, *(f"Could not be trained: {name}" for name in self.failed)])

    def _comparison(self) -> str:
        others, chance = len(self.trials) - 1, "Each was trained once: another seed may change their order."
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
    out: Path,
    *,
    cache: Path,
    trials: int = 10,
    search: Sequence[str] = ("penalty",),
    provenance: Mapping[str, Any] | None = None,
    on_trial: Callable[[Trial, int], None] | None = None,
    on_progress: OnProgress | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Tuned:
    """Search for the knobs that give the best segments on the validation clips.

    Parameters
    ----------
    settings
        Of all trials. What is searched for is set by the search.
    out
        See the top of this module.
    cache
        Folder for features, shared by all trials.
    trials
        How many in all, those of earlier calls included, and those that could not be trained. A search for the
        reduction alone ends when all were tried.
    search
        Some of `SEARCHES`.
    provenance
        What the model files are to say about where they came from; `data_source` names the data.
    on_trial
        Called with each trial when it is over, and the number of trials.

    See `earmark.training.run.run` for the rest; `on_note` is also called with trials that could not be trained.
    """
    knobs = _check(settings, trials, search)
    usable = _without_test(data)
    _, validation, _ = split_for_training(usable)
    _check_times(validation.labels)
    record = _Record.open(out, settings, search, data_fingerprint(usable))
    if knobs == ["reduction"]:
        trials = min(trials, len(_reductions(settings)))
    report_failure = on_note or (lambda note: None)
    while record.n_over < trials:
        values = record.begin(lambda: _propose(record.finished, record.n_over, settings, knobs))
        folder = record.folder(values)
        changed = _changed(settings, values)
        try:
            report = run(
                usable,
                changed,
                folder,
                cache=cache,
                fabric=make_fabric(changed),
                resume=True,
                provenance={**(provenance or {}), "tuning": values},
                on_progress=on_progress,
                on_note=on_note,
            )
        except TrainingError as error:  # it would fail again: the others need not wait for it
            record.end({"failed": str(error)})
            report_failure(f"{_in_words(values)}: {error}")
            continue
        except KeyboardInterrupt:  # while features were computed
            return Tuned(tuple(record.finished), record.failed, None, (), 0, is_finished=False)
        finally:
            on_note = None  # once is enough
        if not report.is_finished:
            return Tuned(tuple(record.finished), record.failed, None, (), 0, is_finished=False)
        source = str((provenance or {}).get("data_source", "data"))
        record.end(_evaluate(folder, validation, source, "threshold" in search))
        if on_trial:
            on_trial(record.finished[-1], trials)
    if not record.finished:
        raise TrainingError(f"no trial could be trained; the first: {next(iter(record.failed.values()))}")
    return _conclude(tuple(record.finished), record.failed, out, settings)


def _in_words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{'lambda' if knob == 'penalty' else knob} {value:g}" for knob, value in values.items())


def _check(settings: Settings, trials: int, search: Sequence[str]) -> list[str]:
    """Refuse what cannot be searched for; the knobs that need training."""
    if trials < 1:
        raise ArgumentError(f"trials must be at least 1, got {trials}")
    for name in search:
        if name not in SEARCHES:
            raise unknown_name("search", name, SEARCHES)
    knobs = [name for name in _SECTIONS if name in search]
    if not knobs:
        raise ArgumentError(
            "nothing to train for: search for penalty or reduction, with or without threshold; thresholds alone are "
            "tuned by earmark evaluate --tune-on validate"
        )
    if "penalty" in knobs:
        pool = settings.pool["name"]
        if settings.training.supervision == "strong":
            raise ArgumentError("strong supervision does not use the pool, so there is no penalty to search for")
        if "penalty" not in POOLS[pool].options():
            raise ArgumentError(f"pool {pool!r} has no penalty to search for; choose pool rap, or search for reduction")
    try:
        import optuna  # noqa: F401  # rather now than after an hour of training
    except ImportError as error:
        raise MissingExtraError("earmark tune", "tune") from error
    return knobs


def _without_test(data: Collection) -> Collection:
    return data.select(clip.filename for clip in data.clips if clip.split != "test")


def _check_times(labels: LabelTable) -> None:
    if not any(row.has_times for row in labels):
        raise DataError(
            "tuning judges by when sounds happen, and no validation clip says so: give clips of split validate labels "
            "with onset and offset"
        )


class _Record:
    """What `search.json` holds: what the search is about, and its trials, the last of which may not be over."""

    def __init__(self, out: Path, about: dict[str, Any], trials: list[dict[str, Any]]) -> None:
        self._out, self._about, self._trials = out, about, trials

    @classmethod
    def open(cls, out: Path, settings: Settings, search: Sequence[str], data: str) -> _Record:
        """That of a folder, or a new one."""
        told = settings.to_dict()
        for knob, section in _SECTIONS.items():
            if knob in search:
                told[section].pop(knob, None)
        about: dict[str, Any] = {"search": [name for name in SEARCHES if name in search], "data": data, **told}
        about = json.loads(json_text(about))  # as it will be read
        path = out / "search.json"
        if not path.exists():
            if (out / "last.ckpt").exists() or (out / "model.safetensors").exists():
                raise ArgumentError(f"{out} holds a run; choose another folder for the search")
            make_folder(out / "trials")
            return cls(out, about, [])
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            before, trials = dict(kept["about"]), [dict(trial) for trial in kept["trials"]]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged; choose another folder for the search") from error
        if before != about:
            raise ArgumentError(
                f"{out} holds another search: {_difference(before, about)}; choose another folder, or search as before"
            )
        return cls(out, about, trials)

    @property
    def n_over(self) -> int:
        """How many trials are over, one way or another."""
        return sum("f1" in own or "failed" in own for own in self._trials)

    @property
    def failed(self) -> dict[str, str]:
        """What could not be trained, and why."""
        return {_in_words(own["values"]): own["failed"] for own in self._trials if "failed" in own}

    @property
    def finished(self) -> list[Trial]:
        """Trials that were judged, in their order."""
        found = []
        for i, own in enumerate(self._trials, 1):
            if "f1" in own:
                low, high = (np.nan if bound is None else bound for bound in own["interval"])
                values = {**own["values"], **own["chosen"]}
                found.append(Trial(i, values, own["f1"], (low, high), self.folder(own["values"])))
        return found

    def folder(self, values: Mapping[str, float]) -> Path:
        """Where a trial is run."""
        return self._out / "trials" / "-".join(f"{knob}-{value:g}" for knob, value in values.items())

    def begin(self, propose: Callable[[], dict[str, float]]) -> dict[str, float]:
        """The trial that was begun and is not over; else a new one."""
        if self.n_over == len(self._trials):
            self._trials.append({"values": propose()})
            self._write()
        values: dict[str, float] = self._trials[-1]["values"]
        return values

    def end(self, outcome: dict[str, Any]) -> None:
        """The trial is over."""
        self._trials[-1] |= outcome
        self._write()

    def _write(self) -> None:
        with written_whole(self._out / "search.json") as draft:
            draft.write_text(json_text({"about": self._about, "trials": self._trials}, indent=1), encoding="utf-8")


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing in which two searches differ."""
    old, new = (
        {f"{name}.{key}" if key else name: value for name, own in about.items() for key, value in _items(own)}
        for about in (before, now)
    )
    key = next(key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key))
    if key == "data":
        return "its clips or labels were others"
    return f"{key} was {json.dumps(old.get(key))}, now {json.dumps(new.get(key))}"


def _items(own: Any) -> list[tuple[str, Any]]:
    return list(own.items()) if isinstance(own, dict) else [("", own)]


def _reductions(settings: Settings) -> list[int]:
    """Those that are tried, the settings' own first."""
    own = settings.network.get("reduction", 16)
    return [own, *(value for value in reversed(_REDUCTIONS) if value != own)]


def _propose(done: Sequence[Trial], n_over: int, settings: Settings, knobs: Sequence[str]) -> dict[str, float]:
    """What to try next, after those that are done and those that failed."""
    reductions = _reductions(settings)
    first: list[dict[str, float]] = [
        {"penalty": penalty, "reduction": reduction}
        for penalty, reduction in zip(
            _PENALTIES if "penalty" in knobs else itertools.repeat(0.0, len(reductions)), itertools.cycle(reductions)
        )
    ]
    if n_over < len(first):
        return {knob: first[n_over][knob] for knob in knobs}
    import optuna
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    known = {
        "penalty": FloatDistribution(min(_PENALTIES), max(_PENALTIES), log=True),
        "reduction": CategoricalDistribution(sorted(reductions)),
    }
    ranges = {knob: known[knob] for knob in knobs}
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        # A study of its own for each trial: what comes next follows from the trials before it, whoever was killed.
        sampler = optuna.samplers.TPESampler(seed=1000 * settings.training.seed + n_over, n_startup_trials=0)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for trial in done:
            tried = {knob: trial.values[knob] for knob in knobs}
            study.add_trial(optuna.trial.create_trial(params=tried, distributions=ranges, value=trial.f1))
        chosen = study.ask(ranges).params
    finally:
        optuna.logging.set_verbosity(verbosity)
    return {knob: int(value) if knob == "reduction" else float(f"{value:.3g}") for knob, value in chosen.items()}


def _changed(settings: Settings, values: Mapping[str, float]) -> Settings:
    return settings.changed({f"{_SECTIONS[k]}.{k}": str(v) for k, v in values.items() if k in _SECTIONS})


def _evaluate(folder: Path, validation: Collection, source: str, choose: bool) -> dict[str, Any]:
    """Segment-based F1 on the validation clips, its interval, and what was chosen without training."""
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
    if choose:
        curve = segment_curve(evaluation, reference)
        f1 = {threshold: curve.f1[curve.at(threshold)] for threshold in _THRESHOLDS}
        chosen["threshold"] = max(f1, key=lambda t: (round(f1[t], 12), -abs(t - 0.5)))  # of equals, the most usual
        digest = evaluation.scores["reference_fingerprint"]
        tuned_on = f"{source}, validate: {len(clips)} clips, labels {digest}, segments of 1 s"
        options = EvaluationOptions(decoder=Decoder(threshold=chosen["threshold"], tuned_on=tuned_on))
        evaluation = evaluate_scores(clips, reference, options, about={**about, **chosen})
    evaluation.save(folder)
    assert evaluation.dynamic is not None
    f1_of_all = float(np.nan_to_num(evaluation.dynamic.overall.f1))
    return {"f1": f1_of_all, "interval": evaluation.scores["intervals"]["dynamic.f1"], "chosen": chosen}


def _conclude(trials: tuple[Trial, ...], failed: Mapping[str, str], out: Path, settings: Settings) -> Tuned:
    """The best one, those tied with it, and the files about it."""
    best = max(trials, key=lambda trial: trial.f1)
    counts = {str(trial.number): _counts(trial) for trial in trials}
    worse: set[str] = set()
    if len(trials) > 1:
        verdicts = compare_models(counts, "f1", against=str(best.number))
        worse = {name for verdict in verdicts if verdict.is_different for name in verdict.names}
    tied = tuple(t for t in trials if t is not best and str(t.number) not in worse)
    _write_table(trials, best, tied, out / "trials.csv")
    with written_whole(out / "config.toml") as draft:
        draft.write_text(_changed(settings, best.values).to_toml(), encoding="utf-8")
    with written_whole(out / "model.safetensors") as draft:
        shutil.copyfile(best.folder / "model.safetensors", draft)
    if "threshold" in best.values:
        decoder = Evaluation.load(best.folder).scores["decoder"]
        with written_whole(out / "decoder.json") as draft:
            draft.write_text(json_text({"decoder": decoder}, indent=1), encoding="utf-8")
    return Tuned(trials, failed, best, tied, len(counts[str(best.number)].filenames), is_finished=True)


def _counts(trial: Trial) -> Counts:
    """Segments of the validation clips, right and wrong."""
    counts = Evaluation.load(trial.folder).dynamic_counts
    assert counts is not None
    return counts


def _write_table(trials: Sequence[Trial], best: Trial, tied: Sequence[Trial], path: Path) -> None:
    with written_whole(path) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trial", *best.values, "f1", "low", "high", "verdict", "folder"])
        for trial in trials:
            verdict = "best" if trial is best else "tied" if trial in tied else "worse"
            numbers = (f"{number:.6f}" for number in (trial.f1, *trial.interval))
            writer.writerow([trial.number, *trial.values.values(), *numbers, verdict, f"trials/{trial.folder.name}"])
