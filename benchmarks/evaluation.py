"""Time of segment-based evaluation, compared with sed_eval.

    python benchmarks/evaluation.py [--clips 2000] [--rounds 5]

Draws clips of ten seconds, each with five events of ten classes, and estimates that are partly wrong. earmark's time is
that from two label tables to scores ("rows": from lists of tuples, including their checks). sed_eval's time is given
with and without the creation of its event lists, file by file, which every caller needs. It runs once, earmark several
times, of which the median is reported. Both must give the same numbers. Times are processor time, which other
load on the machine affects less than wall time; everything runs on one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from earmark.annotations import LabelTable
from earmark.evaluation import segment

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
    import dcase_util
    from sed_eval.sound_event import SegmentBasedMetrics

T = TypeVar("T")
Row = tuple[str, float, float, str]
CLASSES = [f"class {c}" for c in range(10)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    reference, estimate = draw(arguments.clips)
    tables = LabelTable(reference, classes=CLASSES), LabelTable(estimate, classes=CLASSES)
    durations = dict.fromkeys(tables[0].filenames, 10.0)
    print(f"{arguments.clips} clips, {len(reference)} events, {len(estimate)} estimated ones, {len(CLASSES)} classes")
    heads = ("segment", 8), ("sed_eval", 10), ("its lists", 10), ("earmark", 10), ("rows", 10), ("ratio", 7)
    print(*(f"{text:>{width}}" for text, width in (*heads, ("with lists", 11))))
    for length in (1.0, 0.1):
        lists, conversion = timed(lambda: (event_lists(reference), event_lists(estimate)))
        theirs, sed_eval = timed(partial(by_sed_eval, *lists, durations, length))
        evaluate = partial(segment.evaluate, segment=length, durations=durations)
        scores = evaluate(*tables).overall
        np.testing.assert_allclose(scores.f1, theirs["f_measure"]["f_measure"], rtol=1e-12)
        np.testing.assert_allclose(scores.error_rate, theirs["error_rate"]["error_rate"], rtol=1e-12)
        ours = median(partial(evaluate, *tables), arguments.rounds)
        from_rows = median(partial(evaluate, reference, estimate), arguments.rounds)
        print(
            f"{length:>6} s {sed_eval:>8.2f} s {conversion:>8.2f} s {1000 * ours:>7.1f} ms {1000 * from_rows:>7.1f} ms "
            f"{sed_eval / ours:>6.0f}x {(sed_eval + conversion) / ours:>10.0f}x"
        )


def draw(clips: int) -> tuple[list[Row], list[Row]]:
    """Reference and estimate: events moved, left out and invented."""
    rng = np.random.default_rng(0)
    reference: list[Row] = []
    estimate: list[Row] = []
    for k in range(clips):
        for _ in range(5):
            onset, length, label = rng.uniform(0, 8), rng.uniform(0.5, 4), CLASSES[rng.integers(10)]
            reference.append((f"clip {k}", onset, min(10.0, onset + length), label))
            if rng.random() < 0.8:
                onset = max(0.0, onset + rng.normal(0, 0.3))
                label = label if rng.random() < 0.8 else CLASSES[rng.integers(10)]
                estimate.append((f"clip {k}", onset, min(10.0, onset + length), label))
    return reference, estimate


def event_lists(rows: list[Row]) -> dict[str, object]:
    """Rows as sed_eval requires them: a container per file."""
    by_file: dict[str, list[dict[str, object]]] = defaultdict(list)
    for name, onset, offset, label in rows:
        by_file[name].append({"filename": name, "onset": onset, "offset": offset, "event_label": label})
    return {name: dcase_util.containers.MetaDataContainer(events) for name, events in by_file.items()}


def by_sed_eval(
    reference: dict[str, object], estimate: dict[str, object], durations: dict[str, float], length: float
) -> dict[str, dict[str, float]]:
    """The overall results of sed_eval."""
    metrics = SegmentBasedMetrics(CLASSES, time_resolution=length)
    for name, seconds in durations.items():
        metrics.evaluate(reference[name], estimate.get(name, []), evaluated_length_seconds=seconds)
    overall: dict[str, dict[str, float]] = metrics.results()["overall"]
    return overall


def median(call: Callable[[], object], rounds: int) -> float:
    return statistics.median(timed(call)[1] for _ in range(rounds))


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """The result of a call, and its processor time in seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


if __name__ == "__main__":
    main()
