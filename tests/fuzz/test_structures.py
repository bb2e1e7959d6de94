"""Structures that Hypothesis makes: any JSON where a state file is expected, any cells in a table."""

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from earmark.errors import EarmarkError
from earmark.evaluation.result import Evaluation
from earmark.events.decoder import load_decoder
from earmark.formats import read_labels

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NAMES = st.sampled_from(
    ("decoder", "classes", "threshold", "static", "dynamic", "event", "psds", "intervals", "segment")
)
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))
CELLS = st.sampled_from(("", "a.wav", "1", "2.5", "-1", "1e308", "nan", "dog", "train")) | st.text(max_size=4)
FEW = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def returns_or_refuses(call):
    try:
        call()
    except EarmarkError as error:
        assert str(error)  # noqa: PT017


@FEW
@given(value=JSON)
def test_any_json_as_thresholds(tmp_path, value):
    (tmp_path / "scores.json").write_text(json.dumps(value))
    returns_or_refuses(lambda: load_decoder(tmp_path / "scores.json", ("dog", "cat")))


@FEW
@given(value=st.dictionaries(NAMES, JSON))
def test_any_json_as_scores(tmp_path, value):
    (tmp_path / "scores.json").write_text(json.dumps(value))
    (tmp_path / "counts.npz").write_bytes(b"")
    returns_or_refuses(lambda: str(Evaluation.load(tmp_path)))


@FEW
@given(rows=st.lists(st.lists(CELLS, min_size=1, max_size=6), max_size=4))
def test_any_cells_as_labels(tmp_path, rows):
    lines = ["filename\tonset\toffset\tlabel", *("\t".join(row) for row in rows)]
    (tmp_path / "labels.tsv").write_text("\n".join(lines), errors="replace")
    returns_or_refuses(lambda: read_labels(tmp_path / "labels.tsv", "tsv"))
