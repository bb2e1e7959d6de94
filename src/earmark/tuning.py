"""The paper's closing advice: choose lambda on strongly labelled validation data.

Each trial is a run: trained on the clips of split `train`, judged by the segments of those of split `validate`, which
must say when sounds happen. Clips of split `test` are never opened. Optuna chooses what to try; its study lies in a
file, so a search that was killed goes on, with the run it was in.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.bags import Bags
from earmark.checkpoint import load_detector
from earmark.datasets import Collection
from earmark.errors import ArgumentError, DataError, MissingExtraError, unknown_name
from earmark.evaluation.models import judge
from earmark.events import Decoder
from earmark.files import make_folder, written_whole
from earmark.inference.bags import score_bags
from earmark.pooling import POOLS
from earmark.settings import Settings
from earmark.training.run import data_fingerprint, feature_store, make_fabric, run, split_for_training
from earmark.training.watch import Progress

if TYPE_CHECKING:
    import optuna

__all__ = ["SEARCHES", "Trial", "Tuned", "tune"]

SEARCHES = {
    "penalty": "lambda of RAP, from 1e-5 to 1e-1, evenly in its logarithm",
    "reduction": "feature frames per output frame: 16, 8, 4 or 2",
    "threshold": "one for all classes, from 0.05 to 0.95: the best for each trial, without training again",
}
_THRESHOLDS = tuple(round(0.05 * i, 2) for i in range(1, 20))


@dataclass(frozen=True)
class Trial:
    """One try."""

    number: int
    values: Mapping[str, float]
    """What was chosen, by knob."""
    f1: float
    """Of 1-s segments of the validation clips, all classes together."""
    folder: Path


@dataclass(frozen=True)
class Tuned:
    """What a search found."""

    trials: tuple[Trial, ...]
    best: Trial
    is_finished: bool
    """False if it was interrupted and can be called again."""


def tune(
    data: Collection,
    settings: Settings,
    out: Path,
    *,
    cache: Path,
    trials: int = 10,
    search: Sequence[str] = ("penalty",),
    told: Callable[[Trial], None] | None = None,
    hook: Callable[[Progress], None] | None = None,
    features_hook: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Search for the knobs that give the best segments on the validation clips.

    Parameters
    ----------
    settings
        Of all trials; what is searched for is set by the search.
    out
        Holds `study.sqlite`, a run folder per trial, `trials.csv`, and `config.toml` with the best settings.
    trials
        How many in all, those of earlier calls included.
    search
        Some of `SEARCHES`.
    told
        Told about each trial when it is over.
    """
    _check(settings, trials, search)
    _, validation, _ = split_for_training(data)
    if not any(row.has_times for row in validation.labels):
        raise DataError(
            "tuning judges by when sounds happen, and no validation clip says so: give some clips of split validate "
            "labels with onset and offset"
        )
    study = _study(make_folder(out), data, settings, search)
    knobs = [name for name in search if name != "threshold"]
    while (done := _finished(study, out)) is not None and len(done) < trials:
        asked = study.ask()
        chosen = {name: _suggest(asked, name) for name in knobs}
        folder = out / "trials" / "-".join(f"{name}{value:.3g}" for name, value in chosen.items())
        changed = settings.changed({name: str(value) for name, value in chosen.items()})
        report = run(
            _without_test(data),
            changed,
            folder,
            cache=cache,
            fabric=make_fabric(changed),
            go_on=(folder / "last.ckpt").exists(),
            provenance={"tuning": chosen},
            hook=hook,
            features_hook=features_hook,
        )
        if not report.result.is_finished:
            study.enqueue_trial(asked.params)
            study.tell(asked, state=_state("FAIL"))
            return _tuned(done, out, settings, finished=False)
        f1, threshold = _judge(folder, validation, changed, cache, "threshold" in search)
        asked.set_user_attr("threshold", threshold)
        asked.set_user_attr("folder", folder.name)
        study.tell(asked, f1)
        if told:
            told(_finished(study, out)[-1])
    return _tuned(_finished(study, out), out, settings, finished=True)


def _check(settings: Settings, trials: int, search: Sequence[str]) -> None:
    if trials < 1:
        raise ArgumentError(f"trials must be at least 1, got {trials}")
    if not search or set(search) == {"threshold"}:
        raise ArgumentError("nothing to train for: search for penalty or reduction, with or without threshold")
    for name in search:
        if name not in SEARCHES:
            raise unknown_name("search", name, SEARCHES)
    if "penalty" in search and "penalty" not in POOLS[settings.pool["name"]].options():
        raise ArgumentError(f"pool {settings.pool['name']!r} has no penalty to search for; choose pool rap")
    if settings.training.supervision == "strong" and "penalty" in search:
        raise ArgumentError("strong supervision does not use the pool, so there is no penalty to search for")


def _without_test(data: Collection) -> Collection:
    return data.select([clip.filename for clip in data.clips if clip.split != "test"])


def _study(out: Path, data: Collection, settings: Settings, search: Sequence[str]) -> optuna.Study:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("earmark tune", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    said = json.dumps([settings.to_dict(), sorted(search), data_fingerprint(_without_test(data))], sort_keys=True)
    purpose = hashlib.sha256(said.encode()).hexdigest()
    study = optuna.create_study(
        storage=f"sqlite:///{(out / 'study.sqlite').resolve()}",
        study_name="earmark",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=settings.training.seed, n_startup_trials=5),
        load_if_exists=True,
    )
    if study.user_attrs.get("purpose", purpose) != purpose:
        raise ArgumentError(f"{out} holds a search with other settings or data; choose another folder")
    study.set_user_attr("purpose", purpose)
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):  # it was killed
        study.enqueue_trial(trial.params)
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _state(name: str) -> optuna.trial.TrialState:
    import optuna

    return optuna.trial.TrialState[name]


def _suggest(trial: optuna.Trial, name: str) -> float:
    if name == "reduction":
        return int(trial.suggest_categorical("reduction", [16, 8, 4, 2]))
    return float(f"{trial.suggest_float('penalty', 1e-5, 1e-1, log=True):.3g}")


def _finished(study: optuna.Study, out: Path) -> list[Trial]:
    """Trials that are over, in their order, numbered from 1."""
    found: list[Trial] = []
    for trial in study.get_trials(deepcopy=False, states=(_state("COMPLETE"),)):
        values: dict[str, Any] = {name: float(f"{value:.3g}") for name, value in trial.params.items()}
        values["threshold"] = trial.user_attrs["threshold"]
        assert trial.value is not None
        found.append(Trial(len(found) + 1, values, trial.value, out / "trials" / trial.user_attrs["folder"]))
    return found


def _judge(folder: Path, validation: Collection, settings: Settings, cache: Path, choose: bool) -> tuple[float, float]:
    """F1 of segments of the validation clips, and the threshold it was had with."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    detector = load_detector(folder / "model.safetensors").to(device)
    store = feature_store(validation, settings, cache, to_learn=False)
    clips = list(score_bags(detector, Bags(store, validation.labels, device=device)))
    best = (-1.0, 0.5)
    for threshold in sorted(_THRESHOLDS if choose else (0.5,), key=lambda t: abs(t - 0.5)):
        judgement = judge(
            clips,
            validation.labels,
            hop=detector.features.hop,
            reduction=detector.reduction,
            decoder=Decoder(threshold=threshold),
        )
        assert judgement.dynamic is not None
        f1 = float(np.nan_to_num(judgement.dynamic.overall.f1))
        best = max(best, (f1, threshold), key=lambda pair: pair[0])
    return best


def _tuned(done: list[Trial], out: Path, settings: Settings, *, finished: bool) -> Tuned:
    if not done:
        raise ArgumentError(f"interrupted before the first trial was over; go on with the same command ({out})")
    best = max(done, key=lambda trial: trial.f1)
    names = list(best.values)
    with written_whole(out / "trials.csv") as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["trial", *names, "f1", "folder"])
        for trial in done:
            writer.writerow([trial.number, *(trial.values[n] for n in names), f"{trial.f1:.6f}", trial.folder.name])
    knobs = {name: str(value) for name, value in best.values.items() if name != "threshold"}
    if "reduction" in knobs:
        knobs["reduction"] = str(int(best.values["reduction"]))
    with written_whole(out / "config.toml") as draft:
        draft.write_text(settings.changed(knobs).to_toml(), encoding="utf-8")
    return Tuned(tuple(done), best, finished)
