"""Inputs of metrics: labels as columns over the same clips and classes, and frame scores with their times."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypedDict, TypeVar

import numpy as np
import numpy.typing as npt

from earmark.annotations import Label, LabelTable
from earmark.errors import ArgumentError, DataError, unknown_name
from earmark.formats import read_labels
from earmark.text import as_names, counted, first_few
from earmark.timing import joined_spans

Labels: TypeAlias = LabelTable | str | os.PathLike[str] | Iterable[Label | tuple[object, ...]]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
T = TypeVar("T")

DECIMALS = 6  # times of frames are compared to the microsecond, so that 0.7 * 0.1 equals 0.07
_MISSING = ("error", "empty")
_SHORTEST_SEGMENT = 0.001  # seconds


class Events(NamedTuple):
    """Events as columns of the same length: index of the clip, index of the class, onset and offset in seconds."""

    clip: Integers
    label: Integers
    onset: Floats
    offset: Floats

    def select(self, index: npt.NDArray[np.generic]) -> Events:
        """Some of the events, by index or mask."""
        return Events(self.clip[index], self.label[index], self.onset[index], self.offset[index])


class Partial(NamedTuple):
    """Cells that are known in some intervals only: their events, and these intervals, which do not overlap."""

    reference: Events
    estimate: Events
    known: Events


class Pair(NamedTuple):
    """Reference and estimate over the same clips and classes.

    `known`, (clips, classes), is False where the reference does not state whether, or when, a class is active. Counts
    leave these cells out, and neither `reference` nor `estimate` has events of them. `partial` has the events of cells
    that are known in some intervals, as in a recording that was reviewed in part.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    reference: Events
    estimate: Events
    known: Bools
    partial: Partial | None = None


def as_table(labels: Labels, *, may_be_empty: bool = False) -> LabelTable:
    """Labels as a table: a table as it is, rows (filename, onset, offset, label), or a file or folder to be read.

    A file with only a header row is an error, unless it may be empty, as that of an estimate.

    >>> as_table([("a.wav", 0.5, 1.5, "dog")])
    <LabelTable: 1 rows, 1 files, 1 classes>
    """
    if isinstance(labels, LabelTable):
        return labels
    if isinstance(labels, str | os.PathLike):
        return read_labels(labels, may_be_empty=may_be_empty)
    return LabelTable(labels)


def common_names(
    reference: LabelTable,
    estimate: LabelTable,
    *,
    classes: Iterable[str] | None = None,
    filenames: Iterable[str] = (),
    missing: str = "error",
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Clips and classes to evaluate, in the order of the reference; arguments as for `pair_labels`."""
    if missing not in _MISSING:
        raise unknown_name("missing", missing, _MISSING)
    names = dict.fromkeys((*reference.filenames, *as_names(filenames)))
    labels = dict.fromkeys(reference.classes if classes is None else as_names(classes))
    unknown = [name for name in estimate.filenames if name not in names]
    if missing == "empty":
        names.update(dict.fromkeys(unknown))
        if classes is None:
            labels.update(dict.fromkeys(row.label for row in estimate))
    elif unknown:
        raise DataError(
            f"the estimate has {counted(len(unknown), 'file')} ({first_few(map(repr, unknown))}) that the reference "
            "does not have; rename them, list them as clips of the reference, or treat these as empty with "
            "missing='empty'"
        )
    for side, table in (("reference", reference), ("estimate", estimate)):
        if set(table.classes) <= labels.keys():
            continue
        if others := sorted({row.label for row in table}.difference(labels)):
            raise DataError(
                f"the {side} has {counted(len(others), 'label')} ({first_few(map(repr, others))}) outside the classes "
                f"to evaluate ({', '.join(labels)}); rename them, or add them to classes"
            )
    return tuple(names), tuple(labels)


def pair_labels(
    reference: Labels,
    estimate: Labels,
    *,
    classes: Iterable[str] | None = None,
    filenames: Iterable[str] = (),
    missing: str = "error",
) -> Pair:
    """Both sides as columns, over the clips of the reference in its order.

    A clip of the reference that is not in the estimate has no estimated events.

    Parameters
    ----------
    classes
        Classes to evaluate; any other label is an error. By default those of the reference.
    filenames
        Clips to evaluate in addition to those of the reference, as clips without events.
    missing
        What to do with an estimate whose file or label the reference does not have: "error" raises, "empty" counts it
        against an empty reference. Nothing is dropped.
    """
    true, detected = as_table(reference), as_table(estimate, may_be_empty=True)
    names, labels = common_names(true, detected, classes=classes, filenames=filenames, missing=missing)
    clips = {name: i for i, name in enumerate(names)}
    columns = {label: i for i, label in enumerate(labels)}
    true_events, untimed = _as_columns(true, clips, columns)
    detected_events, untimed_estimate = _as_columns(detected, clips, columns)
    for row in untimed_estimate:
        if row.present is not False:
            raise DataError(f"the estimate says that {row.label!r} is in {row.filename!r}, but not when")

    def cells(present: bool | None) -> tuple[list[int], list[int]]:
        """Cells with rows without times that say that a class is present, absent (False) or unknown (None)."""
        rows = [row for row in untimed if row.present is present]
        return [clips[row.filename] for row in rows], [columns[row.label] for row in rows]

    known = np.full((len(names), len(labels)), true.complete)  # later rules override earlier ones
    known[cells(False)] = True
    known[cells(True)] = False
    known[true_events.clip, true_events.label] = True
    known[cells(None)] = False  # a class that also has times is known in part
    partial = _partial(true, true_events, detected_events, known, clips, columns)
    true_events = true_events.select(known[true_events.clip, true_events.label])
    detected_events = detected_events.select(known[detected_events.clip, detected_events.label])
    return Pair(names, labels, true_events, detected_events, known, partial)


def _partial(
    true: LabelTable,
    reference: Events,
    estimate: Events,
    known: Bools,
    clips: Mapping[str, int],
    columns: Mapping[str, int],
) -> Partial | None:
    """Cells that are known only in the intervals of their rows."""
    if true.has_only_events:
        return None
    intervals: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in true:
        cell = clips[row.filename], columns[row.label]
        if row.onset is not None and row.offset is not None and not known[cell]:
            intervals.setdefault(cell, []).append((row.onset, row.offset))
    if not intervals:
        return None
    is_partial = np.zeros_like(known)
    cells, times = [], []
    for cell, spans in intervals.items():
        is_partial[cell] = True
        for span in joined_spans(spans, slack=10**-DECIMALS):
            cells.append(cell)
            times.append(span)
    return Partial(
        reference.select(is_partial[reference.clip, reference.label]),
        estimate.select(is_partial[estimate.clip, estimate.label]),
        Events(*np.array(cells, np.int64).T, *np.array(times, np.float64).T),
    )


def _as_columns(table: LabelTable, clips: Mapping[str, int], columns: Mapping[str, int]) -> tuple[Events, list[Label]]:
    """Events, as columns, and rows without times."""
    rows, untimed = list(table), []
    if not table.has_only_events:
        rows = [row for row in table if row.has_times and row.present]
        untimed = [row for row in table if not row.has_times]
    names, onsets, offsets, labels, *_ = zip(*rows, strict=True) if rows else ((), (), (), ())
    events = Events(
        np.fromiter(map(clips.__getitem__, names), np.int64, len(rows)),
        np.fromiter(map(columns.__getitem__, labels), np.int64, len(rows)),
        np.array(onsets, np.float64),
        np.array(offsets, np.float64),
    )
    return events, untimed


class FrameTimes(TypedDict, total=False):
    """Keyword arguments of metrics that take frame scores. Either `hop` or `edges` is required.

    Attributes
    ----------
    hop
        Seconds between frames, the first of which begins at 0.
    edges
        By file name: (frames + 1,) increasing seconds; frame k lasts from edge k to edge k + 1.
    durations
        By file name, seconds; by default up to the last edge.
    classes
        Names of the columns; by default the reference's classes, in its order.
    """

    hop: float | None
    edges: Mapping[str, npt.ArrayLike] | None
    durations: Mapping[str, float] | None
    classes: Sequence[str] | None


class FrameScores(NamedTuple):
    """Checked frame scores and the times of their frames; clips of the reference first, in its order.

    `values` are (frames, classes) and `edges` (frames + 1,) seconds, one array per clip; `durations` (clips,) seconds.
    """

    filenames: tuple[str, ...]
    classes: tuple[str, ...]
    values: tuple[Floats, ...]
    edges: tuple[Floats, ...]
    durations: Floats


def frame_scores(reference: LabelTable, estimate: Mapping[str, npt.ArrayLike], times: FrameTimes) -> FrameScores:
    """Check frame scores, (frames, classes) by file name, against a reference.

    Every file of the reference must have scores; a file that has scores but is not in the reference has no events.
    """
    hop, edges, durations = times.get("hop"), times.get("edges"), times.get("durations")
    if (hop is None) == (edges is None):
        raise ArgumentError("expected the times of frames either as hop or as edges")
    if hop is not None and not 0 < hop < math.inf:
        raise ArgumentError(f"expected a hop above 0 s, got {hop!r}")
    columns = _columns_of(reference, times.get("classes"))
    if not estimate:
        raise DataError("expected scores of at least one file, got an empty mapping")
    for filename in reference.filenames:
        if filename not in estimate:
            raise DataError(f"{filename}: in the reference but without scores; select() the files that were scored")
    filenames = tuple(dict.fromkeys((*reference.filenames, *estimate)))
    values = tuple(_checked_values(filename, estimate[filename], columns) for filename in filenames)
    bounds, lengths = [], []
    for filename, array in zip(filenames, values, strict=True):
        if hop is not None:
            bounds.append(np.arange(len(array) + 1, dtype=np.float64) * hop)
        else:
            bounds.append(_checked_edges(filename, edges or {}, len(array)))
        lengths.append(bounds[-1][-1] if durations is None else _value_of(filename, durations, "duration"))
        if not 0 < lengths[-1] < math.inf:
            raise DataError(f"{filename}: expected a duration above 0 s, got {lengths[-1]}")
    return FrameScores(filenames, columns, values, tuple(bounds), np.array(lengths, np.float64))


def _columns_of(reference: LabelTable, classes: Sequence[str] | None) -> tuple[str, ...]:
    columns = reference.classes if classes is None else as_names(classes)
    if not columns:
        raise DataError("the reference has no classes; name the columns of the scores with classes")
    if len(set(columns)) != len(columns):
        raise ArgumentError(f"a class is named twice in classes: {', '.join(columns)}")
    for label in reference.classes:
        if label not in columns:
            raise unknown_name("reference label", label, columns)
    return columns


def _value_of(filename: str, values: Mapping[str, T], what: str) -> T:
    if filename not in values:
        raise DataError(f"{filename}: has scores but no {what}")
    return values[filename]


def check_segment(segment: float) -> None:
    """Reject a length of segments that is not a number of seconds, or too short to count segments."""
    if not 0 < segment < math.inf:
        raise ArgumentError(f"expected a segment length above 0 s, got {segment!r}")
    if segment < _SHORTEST_SEGMENT:
        raise ArgumentError(f"expected a segment length of at least {_SHORTEST_SEGMENT} s, got {segment!r}")


def _checked_values(filename: str, array: npt.ArrayLike, classes: Sequence[str]) -> Floats:
    values = np.asarray(array, np.float64)
    if values.ndim != 2 or values.shape[1] != len(classes) or not len(values):
        raise DataError(f"{filename}: expected scores (frames, {len(classes)} classes), got shape {values.shape}")
    if not (values < math.inf).all():
        raise DataError(f"{filename}: a score is NaN or infinite; only -inf is allowed, for never active")
    return values


def _checked_edges(filename: str, edges: Mapping[str, npt.ArrayLike], frames: int) -> Floats:
    times = np.asarray(_value_of(filename, edges, "edges"), np.float64)
    if times.shape != (frames + 1,):
        raise DataError(f"{filename}: expected {frames + 1} edges for {frames} frames, got shape {times.shape}")
    if not (np.isfinite(times).all() and (np.diff(times) > 0).all() and times[0] >= 0):
        raise DataError(f"{filename}: expected edges of frames that are finite, increasing and not below 0")
    return times
