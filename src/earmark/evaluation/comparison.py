"""Runs compared: one table, and which are better, as far as the data say.

    comparison = compare_entries(group_runs([Path("run-a"), Path("run-b")]))
    comparison.best, comparison.tied, comparison.lines

An entry is one system: a run, or several that differ only in their seed. Systems are compared on the clips that all of
them were judged on, by F1 of segments, or of clips where the reference has no times: the best one with each other one,
p-values adjusted for their number (Holm). With several seeds, luck in training is part of the test; where one side was
trained once, it is taken to be as much a matter of luck as the other. Two systems that were both trained once can be
compared as the two models they are, and a note says so.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from earmark.datasets.matching import first_few
from earmark.errors import ArgumentError, DataError
from earmark.evaluation.base import Counts, tally
from earmark.evaluation.cautions import rough_notes
from earmark.evaluation.saved import Saved, load_judgement
from earmark.evaluation.statistics import Verdict, bootstrap, compare, compare_seeds, holm, ratio, seed_variance
from earmark.settings import Settings

__all__ = ["Comparison", "Entry", "Value", "compare_entries", "group_runs"]

Floats = npt.NDArray[np.float64]

_RATIOS = ("f1", "precision", "recall")
_PARTS = {
    "static.maximum": ("static_counts", _RATIOS),
    "static.pooled": ("pooled_counts", _RATIOS),
    "dynamic": ("dynamic_counts", (*_RATIOS, "error_rate")),
    "event": ("event_counts", ("f1",)),
}
_NO_MATTER = ("training.seed", "training.tensorboard", "training.save_minutes")  # none makes another system
_NAMES = {"dynamic.f1": "F1 of segments", "static.maximum.f1": "F1 of clips"}


@dataclass(frozen=True)
class Entry:
    """One system: a judgement, or one for each seed it was trained with."""

    name: str
    judgements: tuple[Saved, ...]

    def counts(self, kind: str) -> list[Counts] | None:
        """Counts of each seed, `kind` being a field of `Saved`; None where there are none."""
        found = [getattr(judgement, kind) for judgement in self.judgements]
        return None if any(counts is None for counts in found) else found


@dataclass(frozen=True)
class Value:
    """A score, the mean over seeds where there are several, and its interval: over clips, or over clips and seeds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """What can be said about some systems.

    Attributes
    ----------
    values
        By entry and score: `static.maximum.f1`, `static.pooled.recall`, `dynamic.error_rate`, `dynamic.macro.f1`, ...
        all classes together, or with `macro` the mean over classes.
    statistic
        The score that decides: `dynamic.f1`, or `static.maximum.f1` without times.
    best, tied
        The entry with the highest one, and those that cannot be told from it.
    verdicts
        On the best and each other entry.
    lines
        The same in words, for people.
    notes
        What one should know before believing it.
    """

    entries: tuple[Entry, ...]
    values: dict[str, dict[str, Value]]
    statistic: str
    best: str
    tied: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    level: float
    clips: int
    segment: float
    reference: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the folders of each entry."""
        return {
            "entries": {entry.name: [str(own.folder) for own in entry.judgements] for entry in self.entries},
            "values": {name: {k: asdict(v) for k, v in own.items()} for name, own in self.values.items()},
            "verdicts": [{**asdict(verdict), "text": verdict.text} for verdict in self.verdicts],
            **{name: list(value) for name in ("tied", "lines", "notes") if (value := getattr(self, name)) is not None},
            **{name: getattr(self, name) for name in ("statistic", "best", "level", "clips", "segment", "reference")},
        }


def compare_entries(entries: Iterable[Entry], *, level: float = 0.95) -> Comparison:
    """Compare systems that were judged on the same clips; one alone gets its intervals."""
    systems = tuple(entries)
    if not systems:
        raise ArgumentError("there is nothing to compare")
    _check_same([judgement for entry in systems for judgement in entry.judgements])
    names = [entry.name for entry in systems]
    if len(set(names)) != len(names):
        raise ArgumentError(f"two entries are called {max(names, key=names.count)!r}")
    first = systems[0].judgements[0]
    has_times = all(entry.counts("dynamic_counts") is not None for entry in systems)
    statistic, kind = ("dynamic.f1", "dynamic_counts") if has_times else ("static.maximum.f1", "static_counts")
    values = {entry.name: _values(entry, level) for entry in systems}
    ranked = sorted(names, key=lambda name: _sortable(values[name][statistic].value), reverse=True)
    best = next(entry for entry in systems if entry.name == ranked[0])
    others = [entry for entry in systems if entry is not best]
    verdicts = _verdicts(best, others, kind, statistic, level)
    tied = tuple(v.names[1] for v in verdicts if v.better is None)
    lines = (*_seed_lines(systems, kind, statistic, level), *_summary(best.name, tied, others, statistic))
    return Comparison(
        entries=systems,
        values=values,
        statistic=statistic,
        best=best.name,
        tied=tied,
        verdicts=verdicts,
        lines=(*lines, *(verdict.text for verdict in verdicts)),
        notes=_notes(systems),
        level=level,
        clips=len(first.static_counts.filenames),
        segment=float(first.scores["segment"]),
        reference=str(first.scores.get("reference", "data")),
    )


def group_runs(folders: Iterable[Path]) -> list[Entry]:
    """Runs as entries: those whose settings differ only in the seed are one, named by pool and what else was set.

    A folder that `evaluate --out` wrote is taken too; it is known by the settings of the run it came from, or else by
    its own name.
    """
    saved = [load_judgement(folder) for folder in dict.fromkeys(folders)]
    groups: dict[str, list[tuple[Saved, dict[str, Any]]]] = {}
    for judgement in saved:
        settings = _settings(judgement)
        key = repr(sorted(settings.items())) if settings else str(judgement.folder)
        groups.setdefault(key, []).append((judgement, settings))
    names = _names([group[0][1] for group in groups.values()], [group[0][0].folder for group in groups.values()])
    return [
        Entry(name, tuple(judgement for judgement, _ in group))
        for name, group in zip(names, groups.values(), strict=True)
    ]


def _settings(judgement: Saved) -> dict[str, Any]:
    """Settings of a run, flat, without the seed; empty where nobody knows them."""
    path = judgement.config
    if path is None:
        config = judgement.scores.get("config") or {}
    else:
        try:
            config = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: not TOML: {error}") from error
    if not config:
        return {}
    with suppress(ArgumentError):  # of another version; else knobs at their default are no difference
        config = Settings.from_dict(config).to_dict()
    flat = {f"{section}.{key}": value for section, own in config.items() for key, value in own.items()}
    for key in _NO_MATTER:
        flat.pop(key, None)
    decoder = dict(judgement.scores.get("decoder") or {})
    if decoder.pop("tuned_on", None):  # each seed has its own thresholds, found in the same way
        decoder["threshold"] = "tuned"
    return {
        **flat,
        **{f"decoder.{key}": value for key, value in decoder.items()},
        "align": judgement.scores.get("align"),
    }


def _names(settings: Sequence[Mapping[str, Any]], folders: Sequence[Path]) -> list[str]:
    """A name for each group: its pool, and those of its settings that tell it from the others."""
    known = [own for own in settings if own]
    is_mixed = len({own.get("training.supervision") for own in known}) > 1
    names = []
    for own, folder in zip(settings, folders, strict=True):
        supervision = str(own.get("training.supervision", "weak"))
        pool = str(own.get("pool.name", folder.name))
        base = pool if not is_mixed or supervision == "weak" else supervision
        told = [_knob(key, own.get(key)) for key in _telling(own, known)]
        names.append(" ".join([base, *filter(None, told)]))
    return [
        name if names.count(name) == 1 else f"{name} ({folder})" for name, folder in zip(names, folders, strict=True)
    ]


def _telling(own: Mapping[str, Any], known: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Settings that differ; those of a pool or a network among systems that have the same one."""
    for key in own:
        kind = f"{key.partition('.')[0]}.name"
        alike = known if key == kind else [other for other in known if other.get(kind) == own.get(kind)]
        is_said = key in ("pool.name", "training.supervision")
        if not is_said and len({repr(other.get(key)) for other in alike}) > 1:
            yield key


def _knob(key: str, value: object) -> str:
    """A setting as people say it; nothing for one that is not set.

    >>> _knob("pool.penalty", 1e-3), _knob("network.name", "mlp"), _knob("training.balanced", True)
    ('penalty 0.001', 'mlp', 'balanced')
    >>> _knob("features.fmax", "none"), _knob("training.balanced", False), _knob("augment.mixup", 0.0)
    ('', '', '')
    """
    section, _, name = key.rpartition(".")
    if not value or value == "none":
        return ""
    word = name.replace("_", " ")
    return word if value is True else _said(value) if name == "name" and section else f"{word} {_said(value)}"


def _said(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_said, value))}]"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _check_same(judgements: Sequence[Saved]) -> None:
    """Refuse to compare what was judged differently, and say in what."""
    first = judgements[0]
    for other in judgements[1:]:
        pair = f"{first.folder} and {other.folder} cannot be compared"
        ours, theirs = (saved.static_counts for saved in (first, other))
        if set(ours.filenames) != set(theirs.filenames):
            alone = sorted(set(ours.filenames) ^ set(theirs.filenames))
            raise ArgumentError(
                f"{pair}: judged on different clips, {len(ours.filenames)} and {len(theirs.filenames)}, "
                f"of which only one has {first_few(alone)}; evaluate both on the same"
            )
        if set(ours.classes) != set(theirs.classes):
            alone = sorted(set(ours.classes) ^ set(theirs.classes))
            raise ArgumentError(f"{pair}: judged on different classes; only one has {first_few(alone)}")
        if ours.classes != theirs.classes:
            raise ArgumentError(f"{pair}: their classes are in different order; train both on the same data")
        for key, what in (("segment", "segments of {} s"), ("convention", "the convention {}")):
            a, b = (saved.scores.get(key) for saved in (first, other))
            if a != b:
                raise ArgumentError(f"{pair}: judged by {what.format(_said(a))} and by {what.format(_said(b))}")
        if first.scores.get("reference_fingerprint") != other.scores.get("reference_fingerprint"):
            a, b = (saved.scores.get("reference", "data") for saved in (first, other))
            told = f"{a} and {b}" if a != b else f"both called {a}, which changed in between"
            raise ArgumentError(f"{pair}: judged against different references, {told}; evaluate both against one")


def _statistic(key: str, convention: str) -> Callable[..., Any]:
    """The ratio that a score's key means."""
    *_, name = key.split(".")
    found = ratio(name, "macro" if ".macro." in key else "overall", convention)
    found.__name__ = _NAMES.get(key, key)
    return found


def _values(entry: Entry, level: float) -> dict[str, Value]:
    convention = str(entry.judgements[0].scores.get("convention", "plain"))
    found: dict[str, Value] = {}
    for part, (kind, names) in _PARTS.items():
        seeds = entry.counts(kind)
        if seeds is None:
            continue
        keys = [f"{part}.{name}" for name in names] + [f"{part}.macro.{name}" for name in names]
        if len(seeds) > 1:
            found.update({key: _over_seeds(seeds, _statistic(key, convention), level) for key in keys})
        else:
            found.update(zip(keys, _over_clips(seeds[0], names, convention, level), strict=True))
    return found


def _over_clips(counts: Counts, names: Sequence[str], convention: str, level: float) -> list[Value]:
    """Ratios of all classes together, then their means over classes, from one set of resamples."""

    def every(counts: Counts, weights: Floats) -> Floats:
        overall, macro, _ = tally(counts, weights, convention=convention)
        return np.stack([part[name] for part in (overall, macro) for name in names], axis=-1)

    interval = bootstrap(counts, every, level=level)
    return [Value(*bounds) for bounds in np.stack([interval.value, interval.low, interval.high], axis=-1).tolist()]


def _over_seeds(seeds: Sequence[Counts], statistic: Callable[..., Any], level: float) -> Value:
    try:
        score = seed_variance(seeds, statistic, level=level)
    except DataError:  # a ratio without a divisor, as precision where nothing is found
        each = [float(statistic(counts, np.ones(len(counts.filenames)))) for counts in seeds]
        return Value(float(np.mean(each)), math.nan, math.nan)
    low, high = score.interval  # Student's, which knows no limits
    is_rate = statistic.__name__.endswith("_rate")
    return Value(score.score, max(0.0, low), high if is_rate else min(1.0, high))


def _verdicts(best: Entry, others: Sequence[Entry], kind: str, statistic: str, level: float) -> tuple[Verdict, ...]:
    """The best against each other entry, adjusted for their number."""
    found = [_verdict(best, other, kind, statistic, level, len(others)) for other in others]
    adjusted = holm([verdict.p_value for verdict in found])
    return tuple(
        replace(verdict, p_value=float(p), is_different=bool(verdict.is_different and p <= 1 - level))
        for verdict, p in zip(found, adjusted, strict=True)
    )


def _verdict(a: Entry, b: Entry, kind: str, statistic: str, level: float, pairs: int) -> Verdict:
    ours, theirs = (_known(entry.counts(kind)) for entry in (a, b))
    f = _statistic(statistic, str(a.judgements[0].scores.get("convention", "plain")))
    names = (a.name, b.name)
    if len(ours) == len(theirs) == 1:
        exchanges = max(2000, math.ceil(4 * pairs / (1 - level)))
        return compare(ours[0], theirs[0], f, names=names, level=level, exchanges=exchanges)
    try:
        if len(ours) > 1 and len(theirs) > 1:
            return compare_seeds(ours, theirs, f, names=names, level=level)
        return _one_against_seeds(ours, theirs, f, names, level)
    except DataError:  # as where one clip alone has events: without it there is no score, and nothing is known of luck
        return _untold(ours, theirs, f, names)


def _untold(ours: Sequence[Counts], theirs: Sequence[Counts], f: Callable[..., Any], names: tuple[str, str]) -> Verdict:
    """The verdict on systems whose clips are too few to say how far luck goes: any difference may be luck."""
    n_clips = len(ours[0].filenames)
    a, b = (float(np.mean([f(counts, np.ones(n_clips)) for counts in own])) for own in (ours, theirs))
    return Verdict(
        names=names,
        statistic=f.__name__,
        scores=(a, b),
        difference=a - b,
        interval=(-math.inf, math.inf),
        p_value=1.0,
        is_different=False,
        lower_is_better=False,  # F1 decides
        basis=f"{n_clips} clips, {len(ours)} and {len(theirs)} seeds: too little to tell",
    )


def _one_against_seeds(
    ours: Sequence[Counts], theirs: Sequence[Counts], f: Callable[..., Any], names: tuple[str, str], level: float
) -> Verdict:
    """A system trained once against one with several seeds, whose spread is taken to be that of both.

    Two or three seeds may lie close together by chance, so the test has their degrees of freedom, however many clips.
    """
    each = [compare(x, y, f, names=names, level=level, exchanges=2000) for x in ours for y in theirs]
    n_clips, n_seeds = len(ours[0].filenames), len(each)
    luck = seed_variance(ours if len(ours) > 1 else theirs, f, level=level).from_seeds * (1 + 1 / n_seeds)
    usual = float(stats.norm.ppf(0.5 + level / 2))
    over_clips = float(np.mean([((v.interval[1] - v.interval[0]) / 2 / usual) ** 2 for v in each]))
    freedom = n_seeds - 1
    deviation = math.sqrt(luck + over_clips)
    a, b = (float(np.mean([v.scores[side] for v in each])) for side in (0, 1))
    reach = float(stats.t.ppf(0.5 + level / 2, freedom)) * deviation
    p_value = float(2 * stats.t.sf(abs(a - b) / deviation, freedom)) if deviation else float(a == b)
    return replace(
        each[0],
        scores=(a, b),
        difference=a - b,
        interval=(a - b - reach, a - b + reach),
        p_value=p_value,
        is_different=bool(p_value <= 1 - level and abs(a - b) > reach),
        basis=f"{n_clips} clips, {len(ours)} and {len(theirs)} seeds",
    )


def _known(counts: list[Counts] | None) -> list[Counts]:
    assert counts is not None  # the statistic was chosen so
    return counts


def _seed_lines(entries: Sequence[Entry], kind: str, statistic: str, level: float) -> tuple[str, ...]:
    """How much luck in training makes, for entries with several seeds."""
    lines = []
    for entry in entries:
        seeds = _known(entry.counts(kind))
        if len(seeds) < 2:
            continue
        convention = str(entry.judgements[0].scores.get("convention", "plain"))
        try:
            score = seed_variance(seeds, _statistic(statistic, convention), level=level)
        except DataError:
            continue
        told = ", ".join(f"{value:.3f}" for value in score.scores)
        luck = f"{_NAMES[statistic]} {told}, standard deviation {float(np.std(score.scores, ddof=1)):.3f}"
        if len(entries) == 1:
            lines.append(f"No difference: {len(seeds)} runs of {entry.name} that differ only in the seed, {luck}")
        else:
            lines.append(f"{entry.name}: {len(seeds)} seeds, {luck}")
    return tuple(lines)


def _summary(best: str, tied: Sequence[str], others: Sequence[Entry], statistic: str) -> tuple[str, ...]:
    what = _NAMES[statistic]
    if not others:
        return ()
    if len(tied) == len(others):
        names = ", ".join([best, *tied])
        return (f"No difference: the data do not say which is best by {what} ({names})",)
    if tied:
        return (f"Best by {what}: {best}; not distinguishable from it: {', '.join(tied)}",)
    return (f"Best by {what}: {best}; it is better than {'the other' if len(others) == 1 else 'all others'}",)


def _notes(entries: Sequence[Entry]) -> tuple[str, ...]:
    notes = []
    once = [entry.name for entry in entries if len(entry.judgements) == 1]
    if len(entries) > 1 and once:
        notes.append(
            f"trained once: {', '.join(once)}; what another seed would change is not in these tests: train with more"
        )
    settings = {name: {_said_decoder(s.scores) for s in entry.judgements} for entry in entries for name in [entry.name]}
    if len(set().union(*settings.values())) > 1:
        told = "; ".join(f"{name}: {', '.join(sorted(own))}" for name, own in settings.items())
        notes.append(f"events were decided on in different ways: {told}")
    return (*notes, *rough_notes(entries[0].judgements[0].static_counts))


def _said_decoder(scores: Mapping[str, Any]) -> str:
    decoder = scores.get("decoder")
    if not decoder:
        return "events made elsewhere"
    threshold = "tuned" if decoder.get("tuned_on") else decoder.get("threshold")
    others = [f"{key} {value}" for key, value in decoder.items() if key not in ("threshold", "tuned_on") and value]
    return " ".join([f"threshold {threshold}", *others, *([f"align {scores['align']}"] if scores.get("align") else [])])


def _sortable(value: float) -> float:
    return -math.inf if math.isnan(value) else value
