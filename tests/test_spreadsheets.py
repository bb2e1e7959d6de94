"""Tables for spreadsheets: names that look like formulas are harmless there, and earmark reads the original names."""

import csv
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fake_scorer import EnergyScorer, bursts
from hypothesis import given
from hypothesis import strategies as st

from earmark import audio
from earmark.annotations import LabelTable
from earmark.cli import main
from earmark.datasets.base import Clip, Collection, Source
from earmark.datasets.checks import refuse_names
from earmark.detection.detector import SoundDetector
from earmark.detection.job import JobOptions, run_job
from earmark.detection.live import listen
from earmark.detection.outputs import growing_table
from earmark.errors import DataError
from earmark.evaluation import evaluate_events
from earmark.events import Decoder
from earmark.experiment.grid import Cell
from earmark.experiment.results import COLUMNS, MORE_COLUMNS, Row, write_results
from earmark.formats import read_labels, write_labels
from earmark.formats.spreadsheets import protected, unprotected
from earmark.pooling import create_pool
from earmark.settings import load_recipe

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "＝1+1"]  # noqa: RUF001
NAMES = [*FORMULAS, "'=1+1", "''=1+1", "'tis", "'", "-", "owl", "-2.5", "+7", "1e-3", "a=b", "'-2.5"]


def is_formula(cell):
    """Whether a spreadsheet would run a cell; a number is one that it only reads."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith(tuple("=+-@\t\r\n＝＋－＠"))  # noqa: RUF001
    return False


@pytest.fixture
def detector():
    """Loud sounds are of a class whose name is a formula."""
    scorer = EnergyScorer()
    scorer.classes = ("=cmd|' /C calc'!A0", "'=1+1")
    scorer.detector = SimpleNamespace(pool=create_pool("max", 2))
    return SoundDetector(scorer)


@pytest.fixture
def recordings(tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    audio.write(folder / "=1+1.wav", bursts(4, (1, 2)), 8000)
    (folder / "@broken.wav").write_bytes(b"RIFF")
    return folder


@given(st.text(st.sampled_from("'=+-@\t\r\n1.e a＝"), max_size=8))  # noqa: RUF001
def test_every_text_survives(text):
    assert unprotected(protected(text)) == text
    assert unprotected(protected(text, safe=False)) == text
    assert not is_formula(protected(text))


@pytest.mark.parametrize("number", ["-2.5", "+7", "-1e-3", "-0.", "5"])
def test_numbers_are_not_touched(number):
    assert protected(number) == number


@pytest.mark.parametrize("format", ["csv", "tsv", "json"])
def test_labels_survive_every_format(tmp_path, format):
    table = LabelTable([(f"{label}.wav", 0.0, 1.0, label) for label in NAMES])
    write_labels(table, tmp_path / f"labels.{format}", format)
    again = read_labels(tmp_path / f"labels.{format}", format)
    assert set(again) == set(table)


def test_tables_for_programs_hold_names_as_they_are(tmp_path):
    table = LabelTable([("a.wav", 0.0, 1.0, "=1+1"), ("a.wav", 0.0, 1.0, "'=1+1")])
    write_labels(table, tmp_path / "labels.tsv", "tsv")
    assert "\t=1+1\n" in (tmp_path / "labels.tsv").read_text()
    assert "\t'=1+1\n" in (tmp_path / "labels.tsv").read_text()


def cells_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return [cell for row in csv.reader(file) for cell in row]


@pytest.mark.parametrize("safe", [True, False])
def test_a_job_protects_its_tables_and_reads_them_back(tmp_path, detector, recordings, safe):
    out = tmp_path / "out"
    options = JobOptions(formats=["csv"], presence=1.0, safe_csv=safe)
    run_job(detector, [recordings], out, options, workers=1)
    tables = [out / "events.csv", out / "presence.csv", out / "failed.csv", out / "events" / "=1+1.wav.csv"]
    for path in tables:
        assert any(map(is_formula, cells_of(path))) is not safe
    for path in (tables[0], tables[3]):
        labels = read_labels(path)
        assert "=1+1.wav" in labels.filenames
        assert {row.label for row in labels} == set(detector.classes)
    events = read_labels(tables[0])
    result = evaluate_events(events, events)
    assert result.dynamic.overall.f1 == 1.0
    assert set(result.static_counts.classes) == set(detector.classes)


@pytest.mark.parametrize("safe", [True, False])
def test_live_events_are_protected(tmp_path, detector, safe):
    with growing_table(tmp_path / "events.csv", safe=safe) as add:
        for event in listen(detector.scorer, [bursts(4, (1, 2))], Decoder(), name="live"):
            add(event)
    assert any(map(is_formula, cells_of(tmp_path / "events.csv"))) is not safe
    assert {row.label for row in read_labels(tmp_path / "events.csv")} == set(detector.classes)


def test_tables_of_grids_are_protected(tmp_path):
    cell = Cell("=1+1", "cnn", None, 0, load_recipe("quick"))
    scores = dict.fromkeys((*COLUMNS, *MORE_COLUMNS), -0.5)
    write_results([Row(cell, "@all", tmp_path, scores, 1, 1)], tmp_path / "results.csv")
    cells = cells_of(tmp_path / "results.csv")
    assert not any(map(is_formula, cells))
    assert {"'=1+1", "'@all", "-0.500000"} <= set(cells)


@pytest.mark.parametrize(("option", "is_safe"), [([], True), (["--safe-csv"], True), (["--no-safe-csv"], False)])
def test_the_option_of_the_command(tmp_path, recordings, detector, monkeypatch, option, is_safe):
    (recordings / "@broken.wav").unlink()
    monkeypatch.setattr("earmark.detection.detector.load", lambda model: detector)
    argv = ["earmark", "detect", "model", str(recordings), "--out", str(tmp_path / "out"), *option]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert any(map(is_formula, cells_of(tmp_path / "out" / "events.csv"))) is not is_safe


@pytest.mark.parametrize("name", [" owl", "owl ", "o\twl", "owl\n"])
def test_training_refuses_names_that_no_table_can_store(tmp_path, name):
    audio.write(tmp_path / "a.wav", np.zeros(8000), 8000)
    labels = LabelTable([("a.wav", None, None, name)])
    data = Collection((Clip("a.wav", (Source(tmp_path / "a.wav"),), "train"),), labels)
    with pytest.raises(DataError, match="expected a name without tabs, line breaks and white space at its ends"):
        refuse_names(data)
