"""Events: one is right if it has the label of a reference event and begins and ends near it (Mesaros et al. 2016).

    scores = evaluate(reference, estimate)
    scores.overall.f1, scores.overall.error_rate, scores.macro.f1, scores.per_class["dog"].recall

Near means within `t_collar` seconds; for the end also within a share of the length of the reference event, if that is
more. Each event takes part in one hit at most, and there are as many hits as there can be (`matching="optimal"`), or as
many as are found by going through both lists once (`"greedy"`). Of what is left, a miss and a false alarm that are near
each other are a substitution; further misses are deletions, further false alarms insertions.

Results equal those of `sed_eval.sound_event.EventBasedMetrics` to the last digit, also where these surprise:

- Times are compared as they are. 2.2 s is not within 0.2 s of 2.0 s, because 2.2 - 2.0 is 0.20000000000000018.
- There can be several largest sets of hits. All give the same F1, but they leave different events over, and the number
  of substitutions depends on these. The set taken here is the one that sed_eval takes; so the order of rows can change
  the error rate, never the rest.
- Substitutions are found greedily, whatever the matching.
- There are no true negatives: accuracy, specificity and what needs them are NaN.
- Ratios without a divisor: see `earmark.evaluation.base`, and `convention`.

Differences from sed_eval:

1. `percentage_of_length` is 0.2 by default, as in DCASE since 2018; there it is 0.5.
2. All files of the reference are judged, also those that the estimate lacks, and an estimate for another one is an
   error; `missing="empty"` judges it against an empty reference. There, the caller hands over files one by one.
3. A label outside `classes` is an error. There it counts in the overall figures but in no class.
4. It leaves out rows without times. Here a class that the reference says is somewhere in the clip, or does not know of,
   is left out of that clip altogether. In an estimate such a row is an error.
5. A collar of 0 is allowed, and so are whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from earmark.errors import ArgumentError, unknown_name
from earmark.evaluation.base import Counts, Events, Labels, Scores, paired, scores

__all__ = ["counts", "evaluate", "scores"]

Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]


def evaluate(
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
    convention: str = "sed_eval",
) -> Scores:
    """Precision, recall, F1 and error rate of events: micro, macro and per class.

    Parameters
    ----------
    reference, estimate
        Label tables, rows (filename, onset, offset, label), or files or folders of them.
    t_collar
        How far, in seconds, an estimated onset or offset may be from the true one.
    percentage_of_length
        The same for offsets, as a share in [0, 1] of the length of the reference event; the larger of both holds.
    onset, offset
        Whether onsets and offsets must be near.
    matching
        "optimal" or "greedy".
    classes
        Classes that are judged; by default those of the reference.
    filenames
        Clips that are judged besides those of the reference: listened to, heard nothing.
    missing
        "error" or "empty": what happens to an estimate whose file or label the reference lacks.
    convention
        "sed_eval" or "plain": what happens on division by zero.

    Examples
    --------
    >>> reference = [("a.wav", 1.0, 2.0, "dog"), ("a.wav", 4.0, 5.0, "cat")]
    >>> estimate = [("a.wav", 1.1, 2.1, "dog"), ("a.wav", 4.0, 5.0, "dog"), ("a.wav", 7.0, 8.0, "cat")]
    >>> result = evaluate(reference, estimate)
    >>> result.overall.f1, result.overall.error_rate  # 1 hit; 1 substitution and 1 insertion for 2 events
    (0.4, 1.0)
    """
    found = counts(
        reference,
        estimate,
        t_collar=t_collar,
        percentage_of_length=percentage_of_length,
        onset=onset,
        offset=offset,
        matching=matching,
        classes=classes,
        filenames=filenames,
        missing=missing,
    )
    return scores(found, convention=convention)


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
    """Events that are right and wrong, clip by clip; arguments as for `evaluate`."""
    if not 0 <= t_collar < math.inf:
        raise ArgumentError(f"t_collar={t_collar!r} must be a time in seconds, not below 0")
    if not 0 <= percentage_of_length <= 1:
        raise ArgumentError(f"percentage_of_length={percentage_of_length!r} must be in [0, 1]")
    if not (onset or offset):
        raise ArgumentError("onset and offset are both switched off: then any two events are near each other")
    if matching not in _MATCHINGS:
        raise unknown_name("matching", matching, _MATCHINGS)
    match = _MATCHINGS[matching]
    pair = paired(reference, estimate, classes=classes, filenames=filenames, missing=missing)
    shape = pair.known.shape
    n_ref, n_est = (_per_clip(events.clip, events.label, shape) for events in (pair.reference, pair.estimate))
    tp, substitutions = np.zeros(shape, np.int64), np.zeros(shape[0], np.int64)
    both = zip(_clips(pair.reference, shape[0]), _clips(pair.estimate, shape[0]), strict=True)
    for clip, (true, said) in enumerate(both):
        if not (len(true.onset) and len(said.onset)):
            continue
        near = np.ones((len(true.onset), len(said.onset)), np.bool_)
        if onset:
            near &= np.abs(true.onset[:, None] - said.onset) <= t_collar
        if offset:
            collar = np.maximum(t_collar, percentage_of_length * (true.offset - true.onset))
            near &= np.abs(true.offset[:, None] - said.offset) <= collar[:, None]
        hits = match(near & (true.label[:, None] == said.label))
        found, used = np.array(list(hits), np.int64), np.array(list(hits.values()), np.int64)
        np.add.at(tp[clip], true.label[found], 1)
        substitutions[clip] = len(_greedy(np.delete(np.delete(near, found, 0), used, 1)))
    deletions, insertions = ((n - tp).sum(1) - substitutions for n in (n_ref, n_est))
    return Counts(pair.filenames, pair.classes, tp, n_est - tp, n_ref - tp, None, substitutions, deletions, insertions)


def _per_clip(clip: Integers, label: Integers, shape: tuple[int, int]) -> Integers:
    total = np.zeros(shape, np.int64)
    np.add.at(total, (clip, label), 1)
    return total


def _clips(events: Events, clips: int) -> Iterator[Events]:
    """Events of each clip in turn, in the order of the rows."""
    order = np.argsort(events.clip, kind="stable")
    starts = np.searchsorted(events.clip[order], np.arange(clips + 1))
    for first, last in pairwise(starts):
        own = order[first:last]
        yield Events(events.clip[own], events.label[own], events.onset[own], events.offset[own])


def _greedy(near: Bools) -> dict[int, int]:
    """Each row in turn takes the first column that is near and free: {row: column}."""
    taken: dict[int, int] = {}
    free = np.ones(near.shape[1], np.bool_)
    for row in np.flatnonzero(near.any(1)):
        for column in np.flatnonzero(near[row] & free)[:1]:
            taken[int(row)] = int(column)
            free[column] = False
    return taken


def _optimal(near: Bools) -> dict[int, int]:
    """A largest set of pairs: {row: column}.

    Any largest set has the same number of pairs, but substitutions depend on who is left over. So that sed_eval's are
    left over, columns are taken in the order in which they first occur, row by row; each takes the first free row; and
    then paths are laid, the shortest first (Hopcroft and Karp 1973), that free a row for one more column each.
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
    """Ways to give one more column a row, as short as can be and disjoint: {column: its new row} for each."""
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
    """From a free row back to a free column, through an unused column of every layer; {} if there is no way."""
    rows, path = [row], list[int]()
    while rows:
        depth = len(layers) - len(rows)
        column = next((c for c in layers[depth] if near[rows[-1], c] and c not in used), None)
        if column is None:  # a dead end: one step back
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
