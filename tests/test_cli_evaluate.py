"""`evaluate` and `compare`, by what they print, write and refuse."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from earmark.annotations import LabelTable
from earmark.api import is_model
from earmark.checkpoint import save_detector
from earmark.cli import app
from earmark.datasets import MissingDataWarning, open_data
from earmark.errors import ArgumentError, DataError, EarmarkError, ModelFileError
from earmark.evaluation import event, segment
from earmark.evaluation.chosen import TrainingData, choose_clips
from earmark.evaluation.result import Evaluation
from earmark.files import locked
from earmark.formats import write_labels
from earmark.reporting.results import commands, read_run
from earmark.settings import load_recipe
from earmark.synthesis import synthesise
from earmark.training import create_detector
from earmark.training.run import data_fingerprint

LEFT = {"scores.json", "events.tsv", "counts.npz", "probabilities.npz", "figures"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Soundscapes, and three runs that were never trained: two seeds of one pool, and another pool."""
    folder = tmp_path_factory.mktemp("world")
    synthesise("durations", folder / "data", clips=6, workers=1)
    classes = open_data(folder / "data").classes
    for name, changes in {
        "a": {"pool": "cap", "seed": "0"},
        "b": {"pool": "cap", "seed": "1"},
        "c": {"pool": "max"},
    }.items():
        settings = load_recipe("quick").changed({"width": "0.25", **changes})
        (folder / name).mkdir()
        detector = create_detector(settings, classes)
        save_detector(folder / name / "model.safetensors", detector, network=settings.network, pool=settings.pool)
        (folder / name / "config.toml").write_text(settings.to_toml())
    return folder


@pytest.fixture
def run(world, capsys):
    """Calls a command with paths below the world; what it prints."""

    def call(*args):
        app([str(world / a[1:]) if str(a).startswith("@") else str(a) for a in args], standalone_mode=False)
        return capsys.readouterr().out

    return call


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """Figures take longer than all the rest, so only the tests that look at them have them."""
    if "figures" not in request.node.name:
        monkeypatch.setattr("earmark.plots.evaluation_figures", lambda *_: {})


def strictly(text):
    """JSON as other languages read it, which know no NaN."""
    return json.loads(text, parse_constant=pytest.fail)


def evaluate(run, model, data, *more):
    return run("evaluate", model, data, *more)


def test_a_judged_run_keeps_scores_events_probabilities_and_figures(world, run, drawn_figures):
    said = evaluate(run, "@a", "@data", "--psds")
    for words in ("1 clip of split test", "all together (micro)", "Events within 0.2 s", "PSDS: ", "Figures: "):
        assert words in said
    assert {path.name for path in (world / "a").iterdir()} >= LEFT
    figures = {path.stem for path in (world / "a" / "figures").iterdir()}
    assert figures == {"f1_by_class", "learned_alpha", "precision_recall"}
    saved = Evaluation.load(world / "a")
    assert saved.scores["clips"] == len(open_data(world / "data", "test"))
    assert saved.scores["decoder"]["threshold"] == 0.5
    assert saved.scores["config"]["pool"]["name"] == "cap"
    assert len(saved.scores["alpha"]) == len(saved.scores["classes"])


def test_files_of_the_user_in_the_folder_of_an_evaluation_are_pointed_out(run, tmp_path):
    said = "already contains other files, which stay as they are: notes.txt"
    assert said not in evaluate(run, "@a", "@data", "--out", tmp_path)
    assert said not in evaluate(run, "@a", "@data", "--out", "@a")  # which has a model
    (tmp_path / "notes.txt").touch()
    assert f"Note: {tmp_path} {said}\n" in evaluate(run, "@a", "@data", "--out", tmp_path)


def test_two_processes_do_not_write_one_evaluation(run, tmp_path):
    held = locked(tmp_path, name=".evaluation.lock")
    with held, pytest.raises(ArgumentError, match=r"process \d+ on .* is using this folder"):
        evaluate(run, "@a", "@data", "--out", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {".evaluation.lock"}


def test_a_reference_may_come_from_elsewhere(world, run, tmp_path):
    labels = open_data(world / "data", "test").labels
    (name,) = labels.filenames
    short = name.rpartition("/")[2]
    rows = [*labels.renamed({name: short}), (short, 0.0, 1.0, "aardvark"), labels[0]._replace(filename="nowhere.wav")]
    table = LabelTable(rows)
    write_labels(table, tmp_path / "truth.csv", "csv")
    said = evaluate(run, "@a", "@data", "--reference", tmp_path / "truth.csv", "--out", tmp_path / "out")
    notes = [line for line in said.splitlines() if line.startswith("Note: ")]
    assert any("1 file of the reference was matched by part of its name" in note for note in notes)
    assert "Note: 1 file of the reference is not among the clips and is left out: nowhere.wav" in notes
    assert "Note: 1 label of the reference is unknown to the model and not evaluated: aardvark" in notes
    mine, own = Evaluation.load(tmp_path / "out").scores, json.loads(evaluate(run, "@a", "@data", "--json"))
    assert mine["notes"] == [note.removeprefix("Note: ") for note in notes]
    assert mine["reference"] == str(tmp_path / "truth.csv")
    assert mine["dynamic"]["overall"] == own["dynamic"]["overall"]
    told = json.loads(evaluate(run, "@a", "@data", "--reference", "authors", "--json", "--out", tmp_path / "authors"))
    assert told["reference"] == "authors"


def test_a_clip_that_cannot_be_read_is_a_line(world, run, tmp_path):
    data = open_data(world / "data", "train")
    lines = ["filename\tonset\toffset\tlabel\tsplit"]
    for i, clip in enumerate(data.clips[:2]):
        sound = clip.sources[0].path.read_bytes()
        (tmp_path / f"{i}.flac").write_bytes(sound if i else sound[: len(sound) // 2])
        lines += [f"{i}.flac\t{row.onset}\t{row.offset}\t{row.label}\ttest" for row in data.labels.of(clip.filename)]
    (tmp_path / "labels.tsv").write_text("\n".join(lines))
    said = run("evaluate", "@a", tmp_path, "--out", tmp_path / "out")
    assert "Note: 1 clip could not be read and is left out: 0.flac (" in said
    assert "damaged: audio is missing from" in said
    assert "--damaged" not in said  # an option of detect


def test_recordings_without_labels_are_evaluated_against_a_reference(world, run, tmp_path):
    data = open_data(world / "data")
    (tmp_path / "sounds" / "night").mkdir(parents=True)
    for clip in data.clips[1:]:
        path = clip.sources[0].path
        shutil.copy(path, tmp_path / "sounds" / "night" / path.name)
    shutil.copy(path, tmp_path / "sounds" / "other.flac")
    write_labels(data.labels, tmp_path / "truth.tsv", "tsv")
    given = (tmp_path / "sounds", "--reference", tmp_path / "truth.tsv", "--out", tmp_path / "out", "--json")
    scores = json.loads(run("evaluate", "@a", *given))
    assert scores["clips"] == len(data) - 1
    assert any("1 clip has no reference and is not evaluated: other.flac" in note for note in scores["notes"])
    run("report", tmp_path / "out", "--out", tmp_path / "page.html")
    assert "clips are not available" not in (tmp_path / "page.html").read_text()
    events = tmp_path / "out" / "events.tsv"
    again = json.loads(run("evaluate", events, *given[:3], "--out", tmp_path / "again", "--json"))
    assert again["event"]["overall"] == scores["event"]["overall"]
    with pytest.raises(DataError, match="sounds: audio files but no labels: expected a table"):
        run("evaluate", "@a", tmp_path / "sounds")


def test_tables_that_are_not_labels_do_not_matter_with_a_reference(world, run, tmp_path):
    data = open_data(world / "data")
    for clip in data.clips:
        shutil.copy(clip.sources[0].path, tmp_path)
    (tmp_path / "weather.csv").write_text("day,rain\n1,2\n")
    (tmp_path / "empty.csv").write_text("filename,label\nx.flac,\n")
    (tmp_path / "weather.ods").touch()
    given = ("evaluate", "@a", tmp_path, "--reference", "@data/labels.tsv", "--out", tmp_path / "out", "--json")
    with pytest.warns(MissingDataWarning) as warned:
        assert json.loads(run(*given))["clips"] == len(data)
    said = {str(warning.message) for warning in warned}
    assert any("weather.csv:1: no column with file names" in text for text in said)
    assert f"{tmp_path / 'empty.csv'}: no labels; skipped, since labels are not needed" in said
    with pytest.raises(DataError, match=r"2 label tables: empty\.csv, weather\.csv; pass one of them"):
        run("evaluate", "@a", tmp_path)


def test_decisions_are_made_as_told_and_tuned_elsewhere_than_judged(run, tmp_path):
    told = json.loads(
        evaluate(run, "@a", "@data", "--threshold", 0.3, "--median", 0.5, "--min-gap", 0.2, "--min-duration", 0.1)
        and evaluate(run, "@a", "@data", "--tune-on", "validate", "--out", tmp_path, "--json")
    )
    assert len(told["decoder"]["threshold"]) == len(told["classes"])
    assert ", validate: " in told["decoder"]["tuned_on"]
    for split, judged, why in (
        ("test", "train", "the test split"),
        ("train", "train", "the clips that are evaluated"),
    ):
        with pytest.raises(ArgumentError, match=f"--tune-on {split}: thresholds tuned on {why} would make"):
            evaluate(run, "@a", "@data", "--split", judged, "--tune-on", split)
    with pytest.raises(ArgumentError, match="--thresholds and --tune-on cannot be combined"):
        evaluate(run, "@a", "@data", "--thresholds", tmp_path / "scores.json", "--tune-on", "validate")
    with pytest.raises(ArgumentError, match=r"expected a split to tune the decoder on \(--tune-on\), got none"):
        evaluate(run, "@a", "@data", "--tune", "decoder")
    with pytest.raises(ArgumentError, match=r"tuning the decoder \(--tune decoder\) chooses all of its settings"):
        evaluate(run, "@a", "@data", "--tune", "decoder", "--tune-on", "validate", "--min-gap", 3)
    with pytest.raises(EarmarkError, match="did you mean 'test'"):
        evaluate(run, "@a", "@data", "--split", "tset")


def test_what_is_to_be_typed_again_gives_the_same_scores(world, run, tmp_path, monkeypatch):
    monkeypatch.setenv("EARMARK_CACHE", str(tmp_path))
    told = json.loads(run("evaluate", "@a", "@data", "--tune-on", "validate", "--median", 0.5, "--json"))
    (line,) = [
        line
        for line in commands([read_run(Evaluation.load(world / "a"), "a")], tmp_path / "page.html")
        if line.startswith("earmark evaluate")
    ]
    assert line.endswith("--median 0.5 --tune-on validate")
    assert json.loads(run(*shlex.split(line)[1:], "--json")) == told


@pytest.mark.parametrize(
    ("split", "due"),
    [
        ("train", "these clips were trained on, so the scores are too optimistic"),
        ("validate", "training chose its epoch by these clips, so the scores are too optimistic"),
        ("test", None),
    ],
)
def test_clips_that_the_model_learned_from_are_mentioned(split, due, world, run, tmp_path):
    settings = load_recipe("quick").changed({"width": "0.25"})
    data = open_data(world / "data")
    detector, parts = create_detector(settings, data.classes), {"network": settings.network, "pool": settings.pool}
    for mark, is_known in ((data_fingerprint(data), True), ("another", False)):
        save_detector(tmp_path / "model.safetensors", detector, **parts, provenance={"data": mark})
        said = evaluate(run, tmp_path, "@data", "--split", split)
        assert ("too optimistic" in said) == (is_known and due is not None)
        if is_known and due:
            assert f"Note: {due}; evaluate on clips that training did not use" in said
            assert Evaluation.load(tmp_path).scores["notes"][0].startswith(due)  # which reports show


def test_events_made_elsewhere_are_judged_without_model_or_sound(world, run, tmp_path):
    evaluate(run, "@a", "@data", "--out", tmp_path / "model")
    model = Evaluation.load(tmp_path / "model")
    durations = tmp_path / "durations.tsv"
    name = model.static_counts.filenames[0]
    durations.write_text(f"filename\tduration\n{name}\t10.0\n")
    events = tmp_path / "model" / "events.tsv"
    truth = open_data(world / "data", "test").labels
    write_labels(truth, tmp_path / "truth.jsonl", "json")
    for data in (tmp_path / "truth.jsonl", world / "data" / "labels.tsv", world / "data"):
        told = json.loads(
            run("evaluate", events, data, "--durations", durations, "--out", tmp_path / "out", "--json", "--psds")
        )
        for part in ("dynamic", "event"):
            for score in ("f1", "error_rate"):
                assert told[part]["overall"][score] == model.scores[part]["overall"][score]
        assert told["model"] is None
        assert told["psds"] is not None
    assert not (tmp_path / "out" / "probabilities.npz").exists()
    assert run("compare", tmp_path / "out", tmp_path / "model").count("not distinguishable") == 1
    assert "Scores: " not in run("evaluate", events, tmp_path / "truth.jsonl")  # nothing is written
    with pytest.raises(ArgumentError, match="thresholds do not apply to events from another program"):
        run("evaluate", events, tmp_path / "truth.jsonl", "--threshold", 0.3, "--out", tmp_path / "y")
    with pytest.raises(ArgumentError, match=r"labels.tsv: no clips of split 'x'; it has test, train, validate"):
        run("evaluate", events, world / "data" / "labels.tsv", "--split", "x", "--out", tmp_path / "y")
    with pytest.raises(ArgumentError, match="durations apply only to events"):
        evaluate(run, "@a", "@data", "--durations", durations)
    with pytest.raises(ModelFileError, match="no such file"):
        evaluate(run, "@gone.tsv", "@data")


@pytest.mark.parametrize(
    "events", ["filename,onset,offset,label\n", "filename\tonset\toffset\tevent_label\n", "file,owl\n"]
)
def test_a_table_of_events_may_have_only_a_header_row(run, tmp_path, monkeypatch, events):
    """Another program has detected nothing."""
    monkeypatch.chdir(tmp_path)
    Path("truth.csv").write_text("filename,onset,offset,label\na.wav,0,1,owl\nb.wav,0,1,dog\n")
    Path("events.csv").write_text(events)
    scores = strictly(run("evaluate", "events.csv", "truth.csv", "--out", "out", "--json"))
    assert [scores[part]["overall"]["recall"] for part in ("dynamic", "event")] == [0, 0]
    assert scores["static"]["maximum"]["overall"]["recall"] == 0
    assert "2 clips are not in the estimate, so they have no detections: a.wav, b.wav" in scores["notes"]
    assert len(Evaluation.load("out").estimate()) == 0
    for metric in (segment, event):
        assert metric.evaluate("truth.csv", "events.csv").overall.recall == 0
        with pytest.raises(DataError, match=r"events.csv: contains no labels"):
            metric.evaluate("events.csv", "truth.csv")
    with pytest.raises(DataError, match=r"events.csv: contains no labels"):
        run("evaluate", "truth.csv", "events.csv")
    with pytest.raises(DataError, match=r"events.csv: contains no labels"):
        run("evaluate", "truth.csv", "truth.csv", "--reference", "events.csv")


@pytest.mark.parametrize("events", ["", "labels.csv"])
def test_labels_given_as_events_are_pointed_out(run, tmp_path, events):
    """They have perfect scores."""
    (tmp_path / "labels.csv").write_text("filename,onset,offset,label\na,0,1,owl\nb,0,1,dog\n")
    assert "\nNote: the events are identical to the reference, so all " in run("evaluate", tmp_path / events, tmp_path)
    (tmp_path / "found.csv").write_text("filename,onset,offset,label\na,0,1,owl\nb,0,1.2,dog\n")
    assert "identical" not in run("evaluate", tmp_path / "found.csv", tmp_path / "labels.csv")


def test_runs_are_compared_in_words_and_tables(world, run, tmp_path):
    for name in "abc":
        evaluate(run, f"@{name}", "@data", "--split", "train")
    said = run("compare", "@a", "@b", "@c", "--out", tmp_path)
    assert "4 clips, segments of 1 s" in said
    assert "cap: 2 seeds" in said
    assert "Note: trained once: max" in said
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"comparison.json", "table.md", "table.tex"}
    told = json.loads((tmp_path / "comparison.json").read_text())
    assert told["entries"] == {"cap": [str(world / "a"), str(world / "b")], "max": [str(world / "c")]}
    assert json.loads(run("compare", "@a", "@c", "--json"))["best"] in ("cap", "max")
    said = run("compare", "@a", "@b")
    assert "cap: 2 seeds, F1 of segments" in said
    assert "Note: the runs differ only in the seed, so they are one system" in said
    with pytest.raises(ArgumentError, match="at least two runs"):
        run("compare", "@a")
    with pytest.raises(DataError, match=r"data: not evaluated yet; run: earmark evaluate .*data DATA"):
        run("compare", "@a", "@data")


def test_json_that_judging_prints_and_comparisons_are_strict(run, tmp_path):
    for name in "ac":
        told = strictly(evaluate(run, f"@{name}", "@data", "--threshold", 1.0, "--out", tmp_path / name, "--json"))
        assert told["dynamic"]["overall"]["precision"] is None  # nothing is found at that threshold
    told = strictly(run("compare", tmp_path / "a", tmp_path / "c", "--out", tmp_path / "both", "--json"))
    assert strictly((tmp_path / "both" / "comparison.json").read_text()) == told
    strictly(run("report", tmp_path / "a", "--out", tmp_path / "page.html", "--json"))


def test_scores_on_disk_are_strict_json(run, tmp_path):
    evaluate(run, "@a", "@data", "--threshold", 1.0, "--out", tmp_path)
    strictly((tmp_path / "scores.json").read_text())


def test_events_of_a_spreadsheet_are_not_taken_for_a_model(world, tmp_path):
    """Workbooks and text of two bytes per character have zeros in their first bytes, as model files have."""
    openpyxl = pytest.importorskip("openpyxl")
    rows = [["filename", "onset", "offset", "label"], ["clip0.wav", 0, 1, "dog"]]
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "events.xlsx")
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "events.txt").write_bytes(text.encode("utf-16"))
    shutil.copy(world / "a" / "model.safetensors", tmp_path / "model")
    assert [is_model(tmp_path / name) for name in ("events.xlsx", "events.txt", "model")] == [False, False, True]


def test_labels_without_times_are_given_as_the_reason_for_dashes(world, run, tmp_path):
    labels = open_data(world / "data", "test").labels
    weak = LabelTable([row._replace(onset=None, offset=None) for row in labels])
    write_labels(weak, tmp_path / "weak.csv", "csv")
    said = evaluate(run, "@a", "@data", "--reference", tmp_path / "weak.csv", "--out", tmp_path / "out")
    assert said.count("Note: no scores of segments and events: the reference has no times; ") == 1
    assert said.count("Note: the numbers are rough: only 1 clip was evaluated") == 1
    assert Evaluation.load(tmp_path / "out").scores["dynamic"] is None
    run("report", tmp_path / "out", "--out", tmp_path / "page.html")
    assert "the reference has no times; " in (tmp_path / "page.html").read_text()


def test_the_curve_of_the_report_is_that_of_the_figures(world, run, tmp_path, monkeypatch):
    """Also against the authors' reference, in which 1.flac has the events of 10.flac, and at another threshold."""
    data = open_data(world / "data", "train")
    lines = ["filename\tonset\toffset\tlabel\tsplit"]
    for name, clip in zip(("1.flac", "10.flac"), data.clips, strict=False):
        (tmp_path / name).write_bytes(clip.sources[0].path.read_bytes())
        lines += [f"{name}\t{row.onset}\t{row.offset}\t{row.label}\ttest" for row in data.labels.of(clip.filename)]
    (tmp_path / "labels.tsv").write_text("\n".join(lines))
    drawn = []

    def draw(curves, chosen=None):
        drawn.append((*curves.values(), *chosen.values()))
        return Figure()

    monkeypatch.setattr("earmark.plots.precision_recall", draw)
    monkeypatch.setattr("earmark.plots.scores.precision_recall", draw)
    told = ("--reference", "authors", "--threshold", 0.3, "--out", tmp_path / "out")
    run("evaluate", "@a", tmp_path, *told)
    run("report", tmp_path / "out", "--out", tmp_path / "page.html")
    (figure, mark), (report, other) = drawn
    assert mark == other == (figure.recall[figure.at(0.3)], figure.precision[figure.at(0.3)])
    for part in ("level", "tp", "fp", "n_ref"):
        np.testing.assert_array_equal(getattr(figure, part), getattr(report, part))
    assert "Marks show the thresholds of each model, open marks 0.5" in (tmp_path / "page.html").read_text()


def test_brackets_in_the_name_of_a_class_are_words(run, tmp_path):
    truth, found = tmp_path / "truth.tsv", tmp_path / "found.csv"
    rows = [("a.wav", 0.0, 1.0, "merula [song]"), ("a.wav", 2.0, 3.0, "merula [/call]")]
    write_labels(LabelTable(rows), truth, "tsv")
    write_labels(LabelTable(rows), found, "csv")
    said = run("evaluate", found, truth, "--out", tmp_path / "judged")
    assert "merula [song] " in said
    assert "merula [/call] " in said


def test_labels_of_other_classes_are_refused_and_leave_what_is_there(world, run, tmp_path):
    (clip,) = open_data(world / "data", "test").clips
    (tmp_path / "a.flac").write_bytes(clip.sources[0].path.read_bytes())
    (tmp_path / "labels.tsv").write_text("filename\tonset\toffset\tlabel\tsplit\na.flac\t0\t1\towl\ttest\n")
    evaluate(run, "@c", "@data")
    before = (world / "c" / "scores.json").read_bytes()
    with pytest.raises(DataError, match=r"^no class in common: the model has .*, the labels have owl$"):
        run("evaluate", "@c", tmp_path)
    assert (world / "c" / "scores.json").read_bytes() == before


def test_data_before_the_model_are_told_the_order(run):
    for model in ("@a", "@a/model.safetensors"):
        with pytest.raises(ModelFileError, match=r"data is not a run folder .*; expected MODEL DATA, in this order$"):
            evaluate(run, "@data", model)


def test_figures_say_of_what_the_f1_is(run, tmp_path, drawn_figures):
    found = tmp_path / "found.csv"
    write_labels(LabelTable([("a.wav", 0.0, 1.0, "owl"), ("b.wav", 0.0, 1.0, "frog")]), found, "csv")
    for name, times, what in (("strong", (0.0, 1.0), "segments"), ("weak", (None, None), "clips")):
        truth = tmp_path / f"{name}.csv"
        write_labels(LabelTable([("a.wav", *times, "owl"), ("b.wav", *times, "frog")]), truth, "csv")
        run("evaluate", found, truth, "--out", tmp_path / name)
        drawn = (tmp_path / name / "figures" / "f1_by_class.svg").read_text()
        assert f">F1 of {what}; lines: 95% intervals</text>" in drawn


@pytest.fixture
def unsplit(world, tmp_path):
    """A folder of 44 recordings without splits, and a run that names it as its training data."""
    data = open_data(world / "data")
    folder = tmp_path / "recordings"
    folder.mkdir()
    lines = ["filename\tonset\toffset\tlabel"]
    for i in range(44):
        clip = data.clips[i % len(data)]
        (folder / f"{i * 7919 % 1009}x.flac").write_bytes(clip.sources[0].path.read_bytes() + bytes([i]))
        rows = data.labels.of(clip.filename)
        lines += [f"{i * 7919 % 1009}x.flac\t{row.onset}\t{row.offset}\t{row.label}" for row in rows]
    (folder / "labels.tsv").write_text("\n".join(lines))
    return folder


def test_all_clips_of_a_folder_without_splits_are_evaluated(run, unsplit, tmp_path):
    said = run("evaluate", "@a", unsplit, "--out", tmp_path / "out")
    assert said.startswith("44 clips\n")
    assert "left out" not in said


def test_a_model_is_not_evaluated_on_its_training_clips_by_default(world, unsplit):
    data = open_data(unsplit)
    same = TrainingData(str(unsplit), data_fingerprint(data))
    part, split, notes = choose_clips(str(unsplit), None, same)
    assert split == "test"
    n = len(part)
    assert n == len(data.split("test")) < 10
    assert notes == (
        f"{44 - n} clips are left out: {len(data.split('train'))} of split train and "
        f"{len(data.split('validate'))} of split validate; --split all evaluates all",
    )
    part, split, _ = choose_clips(str(unsplit), "all", same)
    assert (len(part), split) == (44, "all")
    assert same.notes(str(unsplit), "all")[0].startswith("the model was trained on some of these clips")
    changed = TrainingData(str(unsplit), "0123456789abcdef")
    part, split, notes = choose_clips(str(unsplit), None, changed)
    assert (len(part), split) == (n, "test")
    assert notes[0].startswith("recordings or labels have changed since training")
    elsewhere = TrainingData(str(world / "data"), "0123456789abcdef")
    assert len(choose_clips(str(unsplit), None, elsewhere)[0]) == 44


def test_clips_of_other_splits_are_counted(run, world):
    said = run("evaluate", "@a", "@data")
    assert "of split test" in said.splitlines()[0]
    assert "--split all evaluates all" in said
    assert run("evaluate", "@a", "@data", "--split", "all").startswith("6 clips\n")
    with pytest.raises(ArgumentError, match=r"tuned on the clips that are evaluated .*; evaluate another split"):
        run("evaluate", "@a", "@data", "--split", "all", "--tune-on", "validate")


def test_clips_of_other_splits_are_counted_with_another_reference_too(run, tmp_path):
    (tmp_path / "truth.csv").write_text("filename,onset,offset,label,split\na.wav,0,1,owl,test\nb.wav,0,1,owl,train\n")
    (tmp_path / "other.csv").write_text("filename,onset,offset,label\na.wav,0,2,owl\nc.wav,0,1,owl\n")
    said = run("evaluate", tmp_path / "other.csv", tmp_path / "truth.csv", "--reference", tmp_path / "other.csv")
    assert "Note: 1 clip is left out: 1 of split train; --split all evaluates all" in said
    assert "Note: 1 file of the reference is not among the clips and is left out: c.wav" in said


@pytest.mark.parametrize("option", [(), ("--reference", "truth.csv")])
def test_labels_of_a_file_are_cleaned_as_those_of_a_folder(run, tmp_path, monkeypatch, option):
    """Also those of the events: a program may write `none` where it detects nothing."""
    monkeypatch.chdir(tmp_path)
    rows = "filename,onset,offset,label\na.wav,0,1,owl\nb.wav,0,1,frog\n"
    Path("truth.csv").write_text(f"{rows}c.wav,,,none\nd.wav,2,3,frog;owl\n")
    Path("events.csv").write_text(f"{rows}c.wav,,,nocall\nd.wav,2,3,frog\nd.wav,2,3,owl\n")
    scores = strictly(run("evaluate", "events.csv", "truth.csv", *option, "--json"))
    assert (set(scores["classes"]), scores["clips"]) == ({"owl", "frog"}, 4)
    assert scores["dynamic"]["macro"]["f1"] == scores["static"]["maximum"]["macro"]["f1"] == 1.0
    dropped = 'label that means "nothing" ({}) was dropped: its recording counts as empty'
    assert f"truth.csv: 1 {dropped.format(repr('none'))}" in scores["notes"]
    assert f"events.csv: 1 {dropped.format(repr('nocall'))}" in scores["notes"]
    assert "truth.csv: 1 cell with several labels was divided: 'frog;owl'" in scores["notes"]


@pytest.mark.parametrize("option", [(), ("--reference", "truth.csv")])
def test_a_file_of_labels_has_the_stated_separator(run, tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    Path("truth.csv").write_text("filename,onset,offset,label\na.wav,0,1,owl;frog\n")
    Path("events.csv").write_text("filename,onset,offset,label\na.wav,0,1,owl\na.wav,0,1,frog\n")
    scores = strictly(run("evaluate", "events.csv", "truth.csv", *option, "--separator", ";", "--json"))
    assert (scores["classes"], scores["dynamic"]["macro"]["f1"]) == (["frog", "owl"], 1.0)
    scores = strictly(run("evaluate", "events.csv", "truth.csv", *option, "--separator", "none", "--json"))
    assert scores["classes"] == ["owl;frog", "frog", "owl"]
