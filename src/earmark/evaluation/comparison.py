"""Comparison of evaluated systems: one table, and a test of which are better.

    comparison = compare_entries(group_runs([Path("run-a"), Path("run-b")]))
    print(comparison); comparison.best, comparison.tied

Systems (`earmark.evaluation.systems`) are compared on the same clips, by F1 of segments, or of clips if the reference
has no times. The best system is compared with each other one, with p-values adjusted for their number (Holm). With
several seeds, the test includes the variance of training; if one of the two was trained once, it is assumed to vary as
much as the other. Two systems that were both trained once are compared as two fixed models, with a note.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from earmark.counts import Counts, ratio
from earmark.errors import ArgumentError, DataError
from earmark.evaluation.references import rough_notes
from earmark.evaluation.result import Evaluation
from earmark.evaluation.statistics import Interval, Verdict, bootstrap_ratios, compare_systems, seed_variance
from earmark.evaluation.systems import System, group_runs
from earmark.files import json_text
from earmark.formats.text import write_text
from earmark.ownership import owned
from earmark.tables import Cell, Column, Table, import_pandas, number_cell, short_number
from earmark.text import counted, first_few

if TYPE_CHECKING:
    import pandas

PAPER_COLUMNS = (  # those of the paper's Tables I to III: group, heading, key of the score
    ("static, maximum", "F1", "static.maximum.macro.f1"),
    ("static, maximum", "P", "static.maximum.macro.precision"),
    ("static, maximum", "R", "static.maximum.macro.recall"),
    ("static, pooled", "F1", "static.pooled.macro.f1"),
    ("static, pooled", "P", "static.pooled.macro.precision"),
    ("static, pooled", "R", "static.pooled.macro.recall"),
    ("dynamic", "F1", "dynamic.f1"),
    ("dynamic", "P", "dynamic.precision"),
    ("dynamic", "R", "dynamic.recall"),
    ("dynamic", "error rate", "dynamic.error_rate"),
)
_RATIOS = ("f1", "precision", "recall")
_PARTS = {
    "static.maximum": ("static_counts", _RATIOS),
    "static.pooled": ("pooled_counts", _RATIOS),
    "dynamic": ("dynamic_counts", (*_RATIOS, "error_rate")),
    "event": ("event_counts", ("f1",)),
}
_NAMES = {"dynamic.f1": "F1 of segments", "static.maximum.f1": "F1 of clips"}


@dataclass(frozen=True)
class Comparison:
    """Systems compared.

    Attributes
    ----------
    values
        By system and score: `static.maximum.f1`, `static.pooled.recall`, `dynamic.error_rate`, `dynamic.macro.f1`, ...
        all classes together, or with `macro` the mean over classes; the mean over seeds if there are several, with an
        interval over clips, or over clips and seeds.
    statistic
        The score that is tested: `dynamic.f1`, or `static.maximum.f1` without times.
    best, tied
        The system with the highest score, and those that are not distinguishable from it.
    lines, notes
        The verdicts as sentences, with a summary, and cautions.
    """

    entries: tuple[System, ...]
    values: dict[str, dict[str, Interval[float]]]
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

    def __str__(self) -> str:
        return "\n".join([self.heading, str(replace(self.table(), caption="", note="")), *self.sentences()])

    def _repr_html_(self) -> str:
        note = " ".join(f"{sentence}." for sentence in self.sentences())
        return str(replace(self.table(), caption=self.heading, note=note).to_html())

    @property
    def heading(self) -> str:
        """What was compared on what."""
        return f"{counted(self.clips, 'clip')}, segments of {self.segment:g} s"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, with the folders of each entry."""
        return {
            "entries": {entry.name: [evaluation.name for evaluation in entry.evaluations] for entry in self.entries},
            "values": {name: {k: v._asdict() for k, v in values.items()} for name, values in self.values.items()},
            "verdicts": [{**asdict(verdict), "text": verdict.text} for verdict in self.verdicts],
            **{name: list(getattr(self, name)) for name in ("tied", "lines", "notes")},
            **{name: getattr(self, name) for name in ("statistic", "best", "level", "clips", "segment", "reference")},
        }

    def save(self, folder: Path, *, force: bool = False) -> None:
        """Write comparison.json, table.md and table.tex; `force` replaces files that earmark did not write."""
        table = self.table()
        lines = "\n".join(f"- {line}" for line in (*self.lines, *(f"Note: {note}" for note in self.notes)))
        texts = {
            "table.md": f"{table.to_markdown(intervals=True)}\n\n{lines}\n",
            "table.tex": table.to_latex(intervals=True) + "\n",
            "comparison.json": json_text(self.to_dict(), indent=1),
        }
        with owned(folder, files=[folder / name for name in texts], force=force):
            for name, text in texts.items():
                write_text(folder / name, text)

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a row per system; each score has columns for its value and bounds, `.low` and `.high`."""
        rows = {}
        for name, values in self.values.items():
            rows[name] = {key: value.value for key, value in values.items()}
            rows[name] |= {f"{key}.low": value.low for key, value in values.items()}
            rows[name] |= {f"{key}.high": value.high for key, value in values.items()}
        frame: pandas.DataFrame = import_pandas().DataFrame.from_dict(rows, orient="index")
        return frame.rename_axis("system")

    def table(self) -> Table:
        """Systems against scores, as in the paper's Tables I to III.

        Static scores are averaged over classes (macro), dynamic ones pool all classes (micro). If the reference has no
        times, static scores pool all classes too, as in the test. The best value of each column is bold; underlines are
        in the tested column. A single system has no marks.
        """
        is_dynamic = self.statistic == "dynamic.f1"
        columns, rows = [Column("model", is_text=True)], [[Cell(name)] for name in self.values]
        for group, heading, key in PAPER_COLUMNS:
            key = key if is_dynamic else key.replace(".macro", "")
            if any(key in values and math.isfinite(values[key].value) for values in self.values.values()):
                columns.append(Column(heading, group, lower_is_better=key.endswith("_rate")))
                for row, cell in zip(rows, self.cells(key), strict=True):
                    row.append(cell)
        note = [
            "Static: whether a class occurs in the clip, by its most likely frame (maximum) or by the pooled output."
        ]
        caption, tested = "All classes pooled", "static F1"
        if is_dynamic:
            caption, tested = "Static scores averaged over classes, dynamic scores over segments", "dynamic F1"
            note.append(f"Dynamic: whether it occurs in each segment of {self.segment:g} s.")
        note.append("P is precision, R recall.")
        if len(self.values) > 1:
            note.append(f"Bold: best of the column. Underlined ({tested}): not distinguishable from the best.")
        return Table(columns, rows, caption, " ".join(note))

    def cells(self, key: str) -> list[Cell]:
        """One score of each system, with marks."""
        unknown = Interval(math.nan, math.nan, math.nan)
        scores = {name: values.get(key, unknown) for name, values in self.values.items()}
        is_rate, is_tested = key.endswith("_rate"), key == self.statistic
        known = [score.value for score in scores.values() if math.isfinite(score.value)]
        best_value = short_number(min(known) if is_rate else max(known))
        cells = []
        for name, (value, low, high) in scores.items():
            is_best = name == self.best if is_tested else short_number(value) == best_value
            interval = clipped_interval(low, high, is_rate=is_rate)
            tied = is_tested and name in self.tied
            cells.append(number_cell(value, interval, best=is_best and len(scores) > 1, tied=tied))
        return cells

    def sentences(self) -> list[str]:
        """Intervals of the tested score, verdicts and notes."""
        sentences = []
        for name, values in self.values.items():
            value, low, high = (short_number(number) for number in values[self.statistic])
            sentences.append(f"{name}: {value}, {100 * self.level:g}% interval {low} to {high}")
        return [*sentences, *self.lines, *(f"Note: {note}" for note in self.notes)]


def compare_runs(runs: Sequence[Path], *, level: float = 0.95) -> Comparison:
    """Compare run folders, or folders that `earmark evaluate` wrote to; runs that differ only in seed are grouped."""
    if len(runs) < 2:
        raise ArgumentError("a comparison needs at least two runs")
    comparison = compare_entries(group_runs(runs), level=level)
    if len(comparison.entries) > 1:
        return comparison
    note = "the runs differ only in the seed, so they are one system, and there is no other to compare it with"
    return replace(comparison, notes=(note, *comparison.notes))


def compare_entries(entries: Iterable[System], *, level: float = 0.95) -> Comparison:
    """Compare systems that were evaluated on the same clips; a single one gets its intervals."""
    systems = tuple(entries)
    if not systems:
        raise ArgumentError("expected at least one system to compare, got none")
    _check_same([evaluation for entry in systems for evaluation in entry.evaluations])
    names = [entry.name for entry in systems]
    if len(set(names)) != len(names):
        raise ArgumentError(f"two systems are called {max(names, key=names.count)!r}")
    first = systems[0].evaluations[0]
    has_times = all(entry.counts("dynamic_counts") for entry in systems)
    statistic, kind = ("dynamic.f1", "dynamic_counts") if has_times else ("static.maximum.f1", "static_counts")
    values = {entry.name: _values(entry, level) for entry in systems}
    best = max(names, key=lambda name: np.nan_to_num(values[name][statistic].value, nan=-1.0))
    f = _statistic(statistic, first.scores["convention"])
    seeds = {entry.name: entry.counts(kind) for entry in systems}
    verdicts = tuple(compare_systems(seeds, best, f, level=level))
    tied = tuple(verdict.names[1] for verdict in verdicts if verdict.better is None)
    lines = [*_seed_lines(seeds, f), *_summary(best, tied, len(verdicts), f.__name__)]
    return Comparison(
        entries=systems,
        values=values,
        statistic=statistic,
        best=best,
        tied=tied,
        verdicts=verdicts,
        lines=(*lines, *(verdict.text for verdict in verdicts)),
        notes=_notes(systems),
        level=level,
        clips=len(first.static_counts.filenames),
        segment=first.scores["segment"],
        reference=first.scores.get("reference", "data"),
    )


def _check_same(evaluations: Sequence[Evaluation]) -> None:
    """Refuse to compare systems that were evaluated differently, with the difference."""
    first = evaluations[0]
    for other in evaluations[1:]:
        pair = f"{first.name} and {other.name} cannot be compared"
        counts, others = first.static_counts, other.static_counts
        if different := sorted(set(counts.filenames) ^ set(others.filenames)):
            raise ArgumentError(
                f"{pair}: evaluated on different clips, {len(counts.filenames)} and {len(others.filenames)}, "
                f"of which only one has {first_few(different)}; evaluate both on the same"
            )
        if different := sorted(set(counts.classes) ^ set(others.classes)):
            raise ArgumentError(f"{pair}: evaluated on different classes; only one has {first_few(different)}")
        if counts.classes != others.classes:
            raise ArgumentError(f"{pair}: their classes are in different order; train both on the same data")
        a, b = first.scores["segment"], other.scores["segment"]
        if a != b:
            raise ArgumentError(f"{pair}: evaluated with segments of {a:g} s and of {b:g} s")
        a, b = first.scores["convention"], other.scores["convention"]
        if a != b:
            raise ArgumentError(f"{pair}: evaluated by the convention {a} and by the convention {b}")
        if first.scores.get("reference_fingerprint") != other.scores.get("reference_fingerprint"):
            a, b = (evaluation.scores.get("reference", "data") for evaluation in (first, other))
            names = f"{a} and {b}" if a != b else f"both called {a}, which changed in between"
            raise ArgumentError(f"{pair}: evaluated against different references, {names}; evaluate both against one")


def _statistic(key: str, convention: str) -> ratio:
    """The ratio of a score's key, named for sentences."""
    *_, name = key.split(".")
    f = ratio(name, "macro" if ".macro." in key else "overall", convention)
    f.__name__ = _NAMES.get(key, key)
    return f


def _values(entry: System, level: float) -> dict[str, Interval[float]]:
    convention = entry.evaluations[0].scores["convention"]
    values: dict[str, Interval[float]] = {}
    for part, (kind, names) in _PARTS.items():
        seeds = entry.counts(kind)
        keys = [*names, *(f"macro.{name}" for name in names)]
        if len(seeds) > 1:
            for key in keys:
                values[f"{part}.{key}"] = _over_seeds(seeds, _statistic(f"{part}.{key}", convention), level)
        elif seeds:
            scores = bootstrap_ratios(seeds[0], keys, convention=convention, level=level)
            values |= {f"{part}.{key}": score for key, score in scores.items()}
    if len(entry.evaluations) == 1:  # over blocks of time, where a few long clips were evaluated
        blocks = entry.evaluations[0].intervals if entry.evaluations[0].scores.get("interval_block") else {}
        values |= {key: Interval(values[key].value, *bounds) for key, bounds in blocks.items() if key in values}
    return values


def _over_seeds(seeds: Sequence[Counts], statistic: ratio, level: float) -> Interval[float]:
    try:
        (score, low, high), _ = seed_variance(seeds, statistic, level=level)
    except DataError:  # an undefined ratio, such as precision without detections
        return Interval(float(np.mean([statistic(counts) for counts in seeds])), math.nan, math.nan)
    return Interval(score, *clipped_interval(low, high, is_rate=statistic.__name__.endswith("_rate")))


def _seed_lines(systems: Mapping[str, Sequence[Counts]], f: ratio) -> list[str]:
    """The spread of scores over seeds, for systems with several."""
    lines = []
    for name, seeds in systems.items():
        scores = [float(f(counts)) for counts in seeds]
        if len(seeds) < 2 or not np.isfinite(scores).all():
            continue
        values = ", ".join(f"{score:.3f}" for score in scores)
        spread = f"{f.__name__} {values}, standard deviation {float(np.std(scores, ddof=1)):.3f}"
        lines.append(f"{name}: {len(seeds)} seeds, {spread}")
    return lines


def _summary(best: str, tied: Sequence[str], n_others: int, what: str) -> list[str]:
    if not n_others:
        return []  # one system, whose score is all there is to say
    if len(tied) == n_others:
        return [f"No difference: the data do not say which is best by {what} ({', '.join([best, *tied])})"]
    if tied:
        return [f"Best by {what}: {best}; not distinguishable from it: {', '.join(tied)}"]
    return [f"Best by {what}: {best}; it is better than {'the other' if n_others == 1 else 'all others'}"]


def _notes(entries: Sequence[System]) -> tuple[str, ...]:
    notes = []
    once = [entry.name for entry in entries if len(entry.evaluations) == 1]
    if len(entries) > 1 and once:
        notes.append(f"trained once: {', '.join(once)}; train several seeds to include the variance of training")
    decoders = {entry.name: sorted({_decoder(e.scores) for e in entry.evaluations}) for entry in entries}
    if len(set().union(*decoders.values())) > 1:
        settings = "; ".join(f"{name}: {', '.join(texts)}" for name, texts in decoders.items())
        notes.append(f"events were decoded with different settings: {settings}")
    return (*notes, *rough_notes(entries[0].evaluations[0].static_counts))


def _decoder(scores: Mapping[str, Any]) -> str:
    decoder = scores.get("decoder")
    if not decoder:
        return "events from another program"
    parts = [f"threshold {'tuned' if decoder.get('tuned_on') else decoder.get('threshold')}"]
    parts += [f"{key} {value}" for key, value in decoder.items() if key not in ("threshold", "tuned_on") and value]
    if scores.get("align"):
        parts.append(f"align {scores['align']}")
    return " ".join(parts)


def clipped_interval(low: float, high: float, *, is_rate: bool) -> tuple[float, float]:
    """An interval within the range of the score, which Student's interval over seeds can exceed; NaN stays NaN."""
    return max(low, 0.0), high if is_rate else min(high, 1.0)
