"""Event-based metrics: an event is a hit if a reference event has its label, onset and offset (Mesaros et al. 2016).

    scores = evaluate(reference, estimate)
    scores.overall.f1, scores.overall.error_rate, scores.macro.f1, scores.per_class["dog"].recall

Times may differ by `t_collar` seconds; offsets also by a share of the reference event's length, if that is more. Each
event belongs to at most one hit. The number of hits is the largest possible (`matching="optimal"`), or what one pass
over both lists gives (`"greedy"`). Of the remaining events, a miss and a false alarm with matching times are a
substitution; other misses are deletions, other false alarms insertions.

Counts equal those of `sed_eval.sound_event.EventBasedMetrics`, and so do scores with `convention="sed_eval"`, to the
last digit. Rules of sed_eval that may surprise:

- Times are compared without a tolerance. 2.2 s is not within 0.2 s of 2.0 s, because 2.2 - 2.0 is 0.20000000000000018.
- There can be several largest sets of hits. All give the same F1, but they leave different events unmatched, on which
  the number of substitutions depends. The set chosen here is sed_eval's, so the order of rows can change the error
  rate, but nothing else. (SciPy's `maximum_bipartite_matching` may choose another set.)
- Substitutions are matched greedily, whatever the matching of hits.
- There are no true negatives: accuracy, specificity and balanced accuracy are NaN.
- Division by zero: see `earmark.counts`.

Differences from sed_eval:

1. `percentage_of_length` is 0.2 by default, as in DCASE since 2018; there it is 0.5.
2. All files of the reference are evaluated, also those that the estimate does not have, and an estimate for another
   file is an error; `missing="empty"` evaluates it against an empty reference. In sed_eval, the caller passes files one
   by one.
3. A label outside `classes` is an error. There it counts in the overall figures but in no class.
4. sed_eval skips rows without times. Here a class that the reference marks as present somewhere in the clip, or as
   unknown, is left out of that clip. In an estimate such a row is an error.
5. A collar of 0 is allowed, and so are integers.
"""

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from earmark.counts import Counts, Scores, scores
from earmark.errors import ArgumentError, unknown_name
from earmark.evaluation.base import Bools, Events, Integers, Labels, pair_labels

__all__ = ["counts", "evaluate"]


def evaluate(reference: Labels, estimate: Labels, *, convention: str = "plain", **options: Any) -> Scores:
    """Precision, recall, F1 and error rate of events: micro, macro and per class.

    `convention` is "plain" or "sed_eval": how to divide by zero; see `earmark.counts`. `options` are those of `counts`.

    >>> reference = [("a.wav", 1.0, 2.0, "dog"), ("a.wav", 4.0, 5.0, "cat")]
    >>> estimate = [("a.wav", 1.1, 2.1, "dog"), ("a.wav", 4.0, 5.0, "dog"), ("a.wav", 7.0, 8.0, "cat")]
    >>> result = evaluate(reference, estimate)
    >>> result.overall.f1, result.overall.error_rate  # 1 hit; 1 substitution and 1 insertion for 2 events
    (0.4, 1.0)
    """
    return scores(counts(reference, estimate, **options), convention=convention)


def counts(
    reference: Labels,
    estimate: Labels,
    *,
    t_collar: float = 0.2,
    percentage_of_length: float = 0.2,
    onset: bool = True,
    offset: bool = True,
    matching: str = "optimal",
    classes: Iterable[str] | None = None,
    filenames: Iterable[str] = (),
    missing: str = "error",
) -> Counts:
    """Counts of events, clip by clip.

    Parameters
    ----------
    reference, estimate
        Label tables, rows (filename, onset, offset, label), or files or folders of them.
    t_collar
        How far, in seconds, an estimated onset or offset may be from the true one.
    percentage_of_length
        The same for offsets, as a share in [0, 1] of the reference event's length; the larger applies.
    onset, offset
        Whether onsets and offsets must match.
    matching
        "optimal" or "greedy".
    classes, filenames, missing
        See `earmark.evaluation.base.pair_labels`.
    """
    if not 0 <= t_collar < math.inf:
        raise ArgumentError(f"expected t_collar in seconds, not below 0, got {t_collar!r}")
    if not 0 <= percentage_of_length <= 1:
        raise ArgumentError(f"expected percentage_of_length in [0, 1], got {percentage_of_length!r}")
    if not (onset or offset):
        raise ArgumentError("onset and offset are both off: then any two events would match")
    if matching not in _MATCHINGS:
        raise unknown_name("matching", matching, _MATCHINGS)
    match = _MATCHINGS[matching]
    pair = pair_labels(reference, estimate, classes=classes, filenames=filenames, missing=missing)
    shape = pair.known.shape
    n_ref, n_est = _per_clip(pair.reference, shape), _per_clip(pair.estimate, shape)
    tp = np.zeros(shape, np.int64)
    substitutions = np.zeros(shape[0], np.int64)
    both = zip(_clips(pair.reference, shape[0]), _clips(pair.estimate, shape[0]), strict=True)
    for clip, (true, detected) in enumerate(both):
        if not (len(true.onset) and len(detected.onset)):
            continue
        near = np.ones((len(true.onset), len(detected.onset)), np.bool_)
        if onset:
            near &= np.abs(true.onset[:, None] - detected.onset) <= t_collar
        if offset:
            collar = np.maximum(t_collar, percentage_of_length * (true.offset - true.onset))
            near &= np.abs(true.offset[:, None] - detected.offset) <= collar[:, None]
        hits = match(near & (true.label[:, None] == detected.label))
        rows = np.array(list(hits), np.int64)
        columns = np.array(list(hits.values()), np.int64)
        np.add.at(tp[clip], true.label[rows], 1)
        substitutions[clip] = len(_greedy(np.delete(np.delete(near, rows, 0), columns, 1)))
    deletions = (n_ref - tp).sum(1) - substitutions
    insertions = (n_est - tp).sum(1) - substitutions
    return Counts(pair.filenames, pair.classes, tp, n_est - tp, n_ref - tp, None, substitutions, deletions, insertions)


def _per_clip(events: Events, shape: tuple[int, ...]) -> Integers:
    total = np.zeros(shape, np.int64)
    np.add.at(total, (events.clip, events.label), 1)
    return total


def _clips(events: Events, clips: int) -> Iterator[Events]:
    """Events of each clip in turn, in the order of the rows."""
    order = np.argsort(events.clip, kind="stable")
    starts = np.searchsorted(events.clip[order], np.arange(clips + 1))
    for first, last in pairwise(starts):
        yield events.select(order[first:last])


def _greedy(near: Bools) -> dict[int, int]:
    """Each row in turn takes the first column that is near and free: {row: column}."""
    taken: dict[int, int] = {}
    free = np.ones(near.shape[1], np.bool_)
    for row in np.flatnonzero(near.any(1)):
        candidates = np.flatnonzero(near[row] & free)
        if len(candidates):
            taken[int(row)] = int(candidates[0])
            free[candidates[0]] = False
    return taken


def _optimal(near: Bools) -> dict[int, int]:
    """A largest set of pairs: {row: column}.

    All largest sets have the same number of pairs, but substitutions depend on the events that remain unmatched. To
    leave the same ones as sed_eval, columns are processed in the order in which they first occur, row by row; each
    takes the first free row; then augmenting paths, shortest first (Hopcroft and Karp 1973), add one column each.
    """
    columns = np.flatnonzero(near.any(0))
    columns = columns[np.argsort(near[:, columns].argmax(0), kind="stable")]
    near = near[:, columns]
    row_of = _greedy(near.T)
    while paths := _shortest_paths(near, row_of):
        for path in paths:
            row_of.update(path)
    return {row: int(columns[column]) for column, row in row_of.items()}


def _shortest_paths(near: Bools, row_of: dict[int, int]) -> list[dict[int, int]]:
    """Disjoint augmenting paths of the smallest length: {column: its new row} for each."""
    column_of = {row: column for column, row in row_of.items()}
    layers = [[column for column in range(near.shape[1]) if column not in row_of]]
    unseen = np.ones(len(near), np.bool_)
    while layers[-1]:
        reached = list(dict.fromkeys(row for c in layers[-1] for row in np.flatnonzero(near[:, c] & unseen).tolist()))
        free = [row for row in reached if row not in column_of]
        if free:
            used: set[int] = set()
            return [path for row in free if (path := _path_back(row, layers, near, row_of, used))]
        unseen[reached] = False
        layers.append([column_of[row] for row in reached])
    return []


def _path_back(
    row: int, layers: list[list[int]], near: Bools, row_of: dict[int, int], used: set[int]
) -> dict[int, int]:
    """A path from a free row back to a free column, through an unused column of each layer; {} if there is none."""
    rows, path = [row], list[int]()
    while rows:
        depth = len(layers) - len(rows)
        column = next((c for c in layers[depth] if near[rows[-1], c] and c not in used), None)
        if column is None:  # a dead end: backtrack
            rows.pop()
            del path[-1:]
            continue
        used.add(column)
        path.append(column)
        if depth == 0:
            return dict(zip(path, rows, strict=True))
        rows.append(row_of[column])
    return {}


_MATCHINGS = {"optimal": _optimal, "greedy": _greedy}
