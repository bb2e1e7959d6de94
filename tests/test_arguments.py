"""Mistakes in arguments of the Python API and the command line: one line each, which says what was expected."""

import numpy as np
import pytest
import torch

import earmark
from earmark import audio
from earmark.annotations import LabelTable
from earmark.checkpoint import save_detector
from earmark.datasets import open_data
from earmark.detection.job import JobOptions, run_job
from earmark.errors import ArgumentError
from earmark.evaluation import clip, event, segment
from earmark.evaluation.statistics import bootstrap_ratios
from earmark.events import Decoder
from earmark.experiment import load_grid
from earmark.features import FeatureConfig
from earmark.formats import read_labels
from earmark.plots import clip_figure
from earmark.settings import load_recipe
from earmark.training import create_detector
from earmark.tuning import tune

EMPTY = "expected a path, got an empty text; the current folder is '.'"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """An untrained network."""
    torch.manual_seed(0)
    settings = load_recipe("quick").changed({"width": "0.25", "pool": "max"})
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    detector = create_detector(settings, ("dog", "cat"))
    save_detector(path, detector, network=settings.network, pool=settings.pool)
    return path


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a recording and its labels."""
    monkeypatch.chdir(tmp_path)
    audio.write("a.wav", np.zeros(22050), 22050)
    (tmp_path / "labels.csv").write_text("filename,onset,offset,label\na.wav,0,1,dog\n")
    return tmp_path


def test_an_empty_path_is_not_the_current_folder(here, model):
    detector = earmark.load(model)
    for name, call in {
        "path": lambda: detector.detect(""),
        "path ": lambda: detector.detect(["a.wav", ""]),
        "path  ": lambda: run_job(detector, "", "out"),
        "path   ": lambda: earmark.compare(["", "a"]),
        "path    ": lambda: read_labels(""),
        "data": lambda: earmark.train("", "run"),
        "data ": lambda: earmark.train(["labels.csv", ""], "run"),
        "data  ": lambda: earmark.evaluate(model, ""),
        "data   ": lambda: open_data(""),
        "out": lambda: earmark.train("labels.csv", ""),
        "out ": lambda: run_job(detector, "a.wav", ""),
        "out  ": lambda: earmark.evaluate(model, "labels.csv", out=""),
        "model": lambda: earmark.load(""),
        "model ": lambda: earmark.evaluate("", "labels.csv"),
    }.items():
        with pytest.raises(ArgumentError) as error:
            call()
        assert str(error.value) == f"{name.strip()}: {EMPTY}"
    assert sorted(path.name for path in here.iterdir()) == ["a.wav", "labels.csv"]
    assert detector.detect(".").filenames == (str(here / "a.wav"),)


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("detect", "MODEL", ""), "MODEL"),
        (("train", "", "--out", "run"), "train"),
        (("train", "labels.csv", "--out", ""), "--out"),
        (("evaluate", "MODEL", "labels.csv", "--out="), "--out"),
    ],
)
def test_an_empty_argument_of_a_command_is_an_error(earmark, here, model, words, where):
    code, out, err = earmark(*(model if word == "MODEL" else word for word in words))
    where = model if where == "MODEL" else where
    expected = f"earmark: expected a value after {where}, got an empty text\n"
    assert (code, out, err) == (2, "", expected)


def test_a_table_is_not_a_path(here, model):
    pandas = pytest.importorskip("pandas")
    table = LabelTable([("a.wav", 0, 1, "dog")])
    frame = "frame.to_csv('recordings/labels.csv', index=False)"
    write = "earmark.formats.write_labels(table, 'recordings/labels.csv', 'csv')"
    for given, kind, how in ((pandas.DataFrame(table), "DataFrame", frame), (table, "LabelTable", write)):
        for name, call in {
            "data": lambda given=given: earmark.train(given, "run"),
            "data ": lambda given=given: earmark.evaluate(model, given),
            "data  ": lambda given=given: open_data(given),
            "model": lambda given=given: earmark.evaluate(given, "labels.csv"),
        }.items():
            with pytest.raises(ArgumentError) as error:
                call()
            expected = f"{name.strip()}: expected a path, got {kind}; write it to a file, for example with {how}"
            assert str(error.value) == expected
    with pytest.raises(ArgumentError, match=r"^path: expected a path, got int$"):
        earmark.compare(3)


def test_presence_is_a_number_of_seconds(here, model):
    message = r"presence: expected a number of seconds, at least the .* between frames, or math.inf .*, got 'minute'$"
    with pytest.raises(ArgumentError, match=message):
        run_job(model, "a.wav", "out", JobOptions(presence="minute"))
    assert not (here / "out").exists()


def test_a_text_where_names_belong_is_one_name(here, model):
    """And not its letters."""
    table = LabelTable([("a.wav", 0, 1, "dog")], filenames="b.wav", classes="dog")
    assert (table.filenames, table.classes) == (("b.wav", "a.wav"), ("dog",))
    assert table.select("a.wav").filenames == ("a.wav",)
    assert table.bag_targets("a.wav").tolist() == [[1]]
    assert open_data(here).select("a.wav").labels.filenames == ("a.wav",)
    assert audio.find(here, suffixes=".wav") == [here / "a.wav"]
    run_job(model, "a.wav", "out", JobOptions(formats="csv"))
    assert (here / "out" / "events" / "a.wav.csv").is_file()
    for metric in (segment, event):
        assert metric.counts(table, table, classes="dog").classes == ("dog",)
    assert clip.counts([[1]], [[0.9]], classes="dog", filenames="a.wav").filenames == ("a.wav",)
    assert list(bootstrap_ratios(segment.counts(table, table), "f1")) == ["f1"]
    assert [row.label for row in Decoder().decode([[0.9]], 1.0, "dog", "a.wav")] == ["dog"]
    grid = load_grid("urban-sed")
    assert grid.selected(systems="max").systems == grid.selected(systems=["max"]).systems
    names = {"classes": "dog", "only": "dog"}
    figure = clip_figure(np.zeros((128, 20)), FeatureConfig(), None, {"m": np.zeros((20, 1))}, **names)
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["dog"]
    with pytest.raises(ArgumentError, match="search='lambda' is not known"):
        tune(open_data(here), load_recipe("quick"), here / "tuned", cache=here / "cache", search="lambda")
    with pytest.raises(ArgumentError, match="format='csv,raven' is not known"):
        run_job(model, "a.wav", "out", JobOptions(formats="csv,raven"))
