"""sed_eval's scores of the events in label tables, and what of them is compared with ours."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

FIELDS = {
    "f_measure": {"f1": "f_measure", "precision": "precision", "recall": "recall"},
    "error_rate": {name: name for name in ("error_rate", "substitution_rate", "deletion_rate", "insertion_rate")},
    "accuracy": {name: name for name in ("accuracy", "sensitivity", "specificity", "balanced_accuracy")},
}


def metrics_class(name: str) -> Any:
    """A class of `sed_eval.sound_event`; the test is skipped where sed_eval is not installed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "pkg_resources is deprecated", UserWarning)
        return getattr(pytest.importorskip("sed_eval").sound_event, name)


def results(
    metrics: Any,
    reference: Iterable[Any],
    estimate: Iterable[Any],
    filenames: Iterable[str],
    durations: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """What sed_eval's metrics say about rows (filename, onset, offset, label, ...), handed to them file by file."""
    reference, estimate = list(reference), list(estimate)
    for name in filenames:
        lists = [
            [{"event_onset": row[1], "event_offset": row[2], "event_label": row[3]} for row in rows if row[0] == name]
            for rows in (reference, estimate)
        ]
        metrics.evaluate(*lists, **({} if durations is None else {"evaluated_length_seconds": durations[name]}))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Mean of empty slice", RuntimeWarning)
        return metrics.results()


def assert_equal(ours: Any, theirs: dict[str, Any], groups: Iterable[str]) -> None:
    """The same numbers in some groups, NaN for NaN, to 1e-12 of their size (without reference some are 1e15)."""
    lines = [(ours.overall, theirs["overall"]), (ours.macro, theirs["class_wise_average"])]
    lines += [(ours.per_class[label], line) for label, line in theirs["class_wise"].items()]
    for own, line in lines:
        for group in groups:
            for name, their_name in FIELDS[group].items():
                if their_name in line[group]:
                    np.testing.assert_allclose(getattr(own, name), line[group][their_name], rtol=1e-12, atol=1e-12)
