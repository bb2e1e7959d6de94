"""Runs grouped into systems: those that differ only in their seed are one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from earmark.counts import Counts
from earmark.errors import ArgumentError
from earmark.evaluation.result import Evaluation
from earmark.schema import parse
from earmark.settings import Settings

_IGNORED = ("training.seed", "training.tensorboard", "training.save_minutes")  # settings that do not define a system
_MOST_SETTINGS = 2  # that a name lists


class System(NamedTuple):
    """One system: its evaluation, or one for each seed it was trained with."""

    name: str
    evaluations: tuple[Evaluation, ...]

    def counts(self, kind: str) -> list[Counts]:
        """Counts of each seed, `kind` being an attribute of `Evaluation`; empty if a seed has none."""
        counts = [getattr(evaluation, kind) for evaluation in self.evaluations]
        return [] if None in counts else counts


def group_runs(folders: Iterable[Path]) -> list[System]:
    """Runs as systems: those whose settings differ only in the seed are one.

    Systems are named by pool and changed settings, or by their folders if these are many or one continues another run.
    A folder of `evaluate --out` is accepted too; it is identified by the settings of its run, or else by its name.
    """
    groups: dict[str, list[tuple[Evaluation, dict[str, Any]]]] = {}
    for folder in dict.fromkeys(folders):
        evaluation = Evaluation.load(folder)
        settings = _settings(evaluation)
        key = repr(sorted(settings.items())) if settings else str(folder)
        groups.setdefault(key, []).append((evaluation, settings))
    settings_of = [group[0][1] for group in groups.values()]
    names = _names(settings_of, [[evaluation.folder for evaluation, _ in group] for group in groups.values()])
    return [
        System(name, tuple(evaluation for evaluation, _ in group))
        for name, group in zip(names, groups.values(), strict=True)
    ]


def _settings(evaluation: Evaluation) -> dict[str, Any]:
    """Settings of a run, flat, without the seed; empty if they are unknown."""
    config = evaluation.run_settings()
    if not config:
        return {}
    config = parse(dict[str, dict[str, Any]], config, where=evaluation.config or evaluation.name)
    with suppress(ArgumentError):  # settings of another version; others get defaults, which are then not differences
        config = Settings.from_dict(config).to_dict()
    flat = _flat(config)
    for key in _IGNORED:
        flat.pop(key, None)
    decoder = dict(evaluation.scores.get("decoder") or {})
    if decoder.pop("tuned_on", None):  # each seed has its thresholds, tuned in the same way
        decoder["threshold"] = "tuned"
    flat |= {f"decoder.{key}": value for key, value in decoder.items()}
    return {**flat, "align": evaluation.scores.get("align")}


def _names(systems: Sequence[Mapping[str, Any]], folders: Sequence[Sequence[Path]]) -> list[str]:
    """A name for each system: its pool, and the settings that distinguish it from the others.

    If these are many, as between recipes, or if the starting weights differ, as after retraining, systems are named by
    the folders of their runs. So is one whose pool is unknown.
    """
    known = [settings for settings in systems if settings]
    is_mixed = len({settings.get("training.supervision") for settings in known}) > 1
    described = []
    for settings in systems:
        differences = (_describe(key, settings[key]) for key in _distinguishing(settings, known))
        described.append([text for text in differences if text])
    is_short = all(len(texts) <= _MOST_SETTINGS for texts in described)
    starts = {settings.get("training.start") or "none" for settings in known}
    is_short = is_short and len(starts) <= 1
    names = []
    for settings, (folder, *others), texts in zip(systems, folders, described, strict=True):
        supervision = str(settings.get("training.supervision", "weak"))
        base = supervision if is_mixed and supervision != "weak" else settings.get("pool.name")
        more = f" and {len(others)} more" if others else ""
        names.append(" ".join([base, *texts]) if is_short and base else folder.resolve().name + more)
    return [
        name if names.count(name) == 1 else f"{name} ({folder})"
        for name, (folder, *_) in zip(names, folders, strict=True)
    ]


def _flat(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{key}": value for section, values in config.items() for key, value in values.items()}


def _distinguishing(settings: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Settings that differ; those of a pool or a network only among systems with the same one."""
    for key in settings:
        if key in ("pool.name", "training.supervision"):  # part of every name
            continue
        kind = f"{key.partition('.')[0]}.name"
        alike = known if key == kind else [other for other in known if other.get(kind) == settings.get(kind)]
        if len({repr(other.get(key)) for other in alike}) > 1:
            yield key


def _describe(key: str, value: object) -> str:
    """A setting in words; empty if it is off.

    >>> _describe("pool.penalty", 1e-3), _describe("network.name", "mlp"), _describe("training.balanced", True)
    ('penalty 0.001', 'mlp', 'balanced')
    >>> _describe("features.fmax", "none"), _describe("training.balanced", False), _describe("augment.mixup", 0.0)
    ('', '', '')
    """
    section, _, name = key.rpartition(".")
    if not value or value == "none":
        return ""
    if value is True:
        return name.replace("_", " ")
    return _text(value) if name == "name" and section else f"{name.replace('_', ' ')} {_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
