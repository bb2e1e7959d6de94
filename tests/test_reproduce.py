"""`earmark reproduce` and what it leaves to read, from evaluations made by hand; and the results that are kept."""

import html
import importlib.util
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawing import drawn

from earmark import audio
from earmark.annotations import LabelTable
from earmark.cli import main
from earmark.errors import ArgumentError, DataError, TrainingError
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.evaluation.systems import System
from earmark.experiment import gather, keep_runs, load_grid, run_grid
from earmark.experiment.kept import read_runs
from earmark.inference.scores import RecordingScores
from earmark.progress import Progress
from earmark.reporting import grid as reporting
from earmark.reporting.grid import write_grid_report
from earmark.reporting.grid_tables import fold_table, published_tables

ROOT = Path(__file__).parents[1]
CLASSES = ("dog <bark>", "siren")
CLIPS, SECONDS, HOP = 8, 4.0, 0.1
GRID = """
title = "Dogs & sirens"
data = "folder:nowhere"
recipe = "quick"
seeds = 2
notes = ["Only `eight` clips."]

[systems]
max = { pool = "max" }
"RAP 1e-3" = { pool = "rap", penalty = 1e-3 }
CAP = { pool = "cap" }
strong = { pool = "max", supervision = "strong" }

[evaluations.clean]
[evaluations.table-1]
align = "authors"
reference = "authors"

[published]
table = "Table I"
evaluation = "table-1"
static_evaluation = "clean"
static_rule = "pooled"
[published.scores]
max = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
CAP = [0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
"""
NOISE = {"max": 0.35, "RAP 1e-3": 0.1, "CAP": 0.11, "strong": 0.02}


def labels_of(fold):
    names = [f"{fold}-{i}.wav" for i in range(CLIPS)]
    rows = [(n, c + 0.5, c + 1.5, label) for i, n in enumerate(names) for c, label in enumerate(CLASSES) if (i + c) % 3]
    return LabelTable(rows, filenames=names, classes=CLASSES)


def evaluate_cell(cell, folder, evaluations):
    """Leave what training and evaluating a cell would: its detector is wrong in a share of the frames."""
    rng = np.random.default_rng(cell.seed + 10 * (cell.fold or 0))
    labels = labels_of(cell.fold)
    frames = round(SECONDS / HOP)
    clips = []
    for name in labels.filenames:
        truth = labels.frame_targets(name, frames, HOP)
        wrong = rng.random(truth.shape) < NOISE[cell.system]
        p = np.where(wrong, 1 - truth, truth).astype(np.float32)
        clips.append(RecordingScores(name, labels.classes, p, HOP, 1, frames, SECONDS, p.mean(0) * 1.8))
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(cell.settings.to_toml())
    (folder / "log.jsonl").write_text('{"epoch": 1, "best": true}\n')
    alpha = [1.0 + cell.seed, 3.0] if cell.system in ("RAP 1e-3", "CAP") else None
    for name, spec in evaluations.items():
        about = {"data": "folder:nowhere", **vars(spec), "seed": cell.seed}
        options = EvaluationOptions(align=spec.align)
        evaluate_scores(clips, labels, options, about={**about, "alpha": alpha}).save(folder / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A grid and its judged cells; the last seed of CAP is not done."""
    place = tmp_path_factory.mktemp("grid")
    (place / "grid.toml").write_text(GRID)
    grid = load_grid(place / "grid.toml")
    for cell in grid.cells:
        if (cell.system, cell.seed) != ("CAP", 1):
            evaluate_cell(cell, place / "out" / "cells" / cell.name, grid.evaluations)
    rows = gather(grid, place / "out")
    with drawn():
        return grid, rows, place, write_grid_report(grid, rows, place / "out", command="earmark reproduce it")


@pytest.fixture(scope="module")
def split_three_ways(tmp_path_factory):
    """The same with three folds."""
    place = tmp_path_factory.mktemp("folds")
    text = GRID.replace("seeds = 2", "seeds = 1\nfolds = 3").replace("folder:nowhere", "medleydb:nowhere")
    (place / "grid.toml").write_text(text)
    grid = load_grid(place / "grid.toml")
    for cell in grid.cells:
        evaluate_cell(cell, place / "cells" / cell.name, grid.evaluations)
    return grid, gather(grid, place), place


def test_a_grid_leaves_tables_figures_and_a_page(made):
    _, _, place, written = made
    names = {str(path.relative_to(place / "out")) for path in written}
    tables = ("table-clean", "table-table-1", "published", "report")
    figures = ("f1-by-class", "learned-alpha", "published-f1", "network")
    assert names == {
        *("results.csv", "report.html"),
        *(f"{name}{suffix}" for name in tables for suffix in (".md", ".tex")),
        *(f"figures/{name}{suffix}" for name in figures for suffix in (".png", ".svg")),
    }
    assert all(path.stat().st_size for path in written)


def test_the_figure_beside_the_paper_names_evaluations_in_words(made):
    """Not by their names in the grid's file."""
    grid, _, place, _ = made
    text = (place / "out" / "figures" / "published-f1.svg").read_text()
    for words in ("Table I of the paper", "ours, evaluated as in the paper", "ours, correct labels"):
        assert f">{words}</text>" in text
    assert "clean" not in text
    paper, clean = grid.evaluations["table-1"], grid.evaluations["clean"]
    other = {"table-1": replace(paper, reference="data"), "clean": clean, "coarse": replace(clean, segment=2.0)}
    changed = replace(grid, evaluations=other)
    words = [reporting._in_words(changed, grid.published, name) for name in other]
    assert words == ["evaluated as in the paper", "correct frame times", "evaluation coarse"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sound of the judged clips, and of others to train and to validate with."""
    place = tmp_path_factory.mktemp("sound")
    labels = labels_of(None)
    sound = np.random.default_rng(0).normal(0, 0.1, int(SECONDS * 8000))
    lines = ["filename\tonset\toffset\tlabel\tsplit"]
    for name in labels.filenames:
        rows = [row for row in labels.of(name) if row.has_times]
        lines += [f"{name}\t{r.onset}\t{r.offset}\t{r.label}\ttest" for r in rows] or [f"{name}\t\t\t\ttest"]
    lines += ["to-learn.wav\t0\t4\tsiren\ttrain", "other.wav\t\t\t\ttrain"]
    lines += [f"to-check.wav\t1\t2\t{label}\tvalidate" for label in CLASSES]
    for name in (*labels.filenames, "to-learn.wav", "other.wav", "to-check.wav"):
        audio.write(place / name, sound, 8000)
    (place / "labels.tsv").write_text("\n".join(lines) + "\n")
    return place


def test_where_the_data_are_at_hand_durations_and_a_clip_are_drawn(made, data, tmp_path):
    """Figs. 3 to 5 and 9. The clip is the first with both classes; unless it cannot be read."""
    grid, rows, _, _ = made
    shutil.copytree(data, tmp_path / "data")
    there = grid.selected(data=f"folder:{tmp_path / 'data'}")
    with drawn():
        written = {path.name for path in write_grid_report(there, rows, tmp_path / "out")}
    assert {"event-durations.png", "example.png", "example.svg"} <= written
    text = (tmp_path / "out" / "report.html").read_text()
    assert "Output of RAP 1e-3 for None-1.wav, the test clip with the most classes" in text  # the best one
    for path in (tmp_path / "data").glob("*.wav"):
        path.write_bytes(b"no sound")
    assert "example.png" not in {path.name for path in write_grid_report(there, rows, tmp_path / "again")}


def test_the_clip_is_one_to_validate_with_if_the_model_is_there(made, data, monkeypatch):
    """Fig. 9, by the system that the grid names."""
    grid, rows, _, _ = made
    evaluation = reporting._Evaluation("clean", (), None, {})
    there = replace(grid, example="CAP", data={"": f"folder:{data}"})
    own = next(row for row in rows if (row.evaluation, row.cell.system) == ("clean", "CAP"))
    model = own.folder.parent / "model.safetensors"
    frames = round(SECONDS / HOP)

    class Detector:
        def score_clips(self, clips):
            p = np.full((frames, 2), 0.5, np.float32)
            return [RecordingScores(clip.filename, CLASSES, p, HOP, 1, frames, SECONDS) for clip in clips], {}

    monkeypatch.setattr(reporting, "load", lambda folder: Detector() if folder == model.parent else None)
    model.touch()
    try:
        example = reporting._example(there, rows, evaluation)
    finally:
        model.unlink()
    assert (example.system, example.split, example.filename) == ("CAP", "validate", "to-check.wav")
    example = reporting._example(there, rows, evaluation)
    assert (example.system, example.split) == ("CAP", "test")


def test_durations_are_those_of_test_clips_and_logarithmic_for_long_recordings(made, data, monkeypatch):
    """Figs. 3 and 4; Fig. 5."""
    grid, _, _, _ = made
    drawn = []
    monkeypatch.setattr(reporting.plots, "event_durations", lambda labels, **options: drawn.append((labels, options)))
    reporting._durations(grid.selected(data=f"folder:{data}"))
    reporting._durations(grid.selected(data=f"folder:{data}", changes={"patch": 1.0}))
    (labels, short), (_, long) = drawn
    assert set(labels.filenames) == set(labels_of(None).filenames)
    assert (short, long) == ({"clip_duration": 10.0, "log": False}, {"clip_duration": 1.0, "log": True})


def test_systems_that_were_told_when_do_not_compete(made):
    text = (made[2] / "out" / "table-clean.md").read_text()
    *_, last = (line for line in text.splitlines() if line.startswith("|"))
    assert last.startswith("| strong |")
    assert "**" not in last
    assert "<ins>" not in last
    assert "| RAP 1e-3 |" in text
    assert re.search(r"\| (RAP 1e-3|CAP) \|.* \*\*", text)
    assert "Trained with event times and therefore neither marked nor tested: strong" in text
    assert "static, pooled F1" in text


def test_static_columns_are_averaged_over_classes(made):
    grid, rows, place, _ = made
    own = [r for r in rows if r.evaluation == "clean" and r.cell.system == "max"]
    macro = np.mean([r.scores["static_pooled_f1"] for r in own])
    micro = np.mean([r.saved().scores["static"]["pooled"]["overall"]["f1"] for r in own])
    assert round(macro, 3) != round(micro, 3)
    line = next(x for x in (place / "out" / "table-clean.md").read_text().splitlines() if x.startswith("| max"))
    assert f"{macro:.3f}"[1:] in line.split("|")[5]
    assert list(grid.evaluations) == ["clean", "table-1"]


def test_ours_stand_beside_the_published_ones(made):
    grid, rows, _, _ = made
    rows = [replace(r, scores={**r.scores, "dynamic_f1": 0.4502, "static_pooled_f1": 0.3}) for r in rows]
    rows = [r if r.evaluation == "clean" else replace(r, scores={**r.scores, "static_pooled_f1": 0.7}) for r in rows]
    short, full = published_tables(grid, rows)
    texts = [[cell.text for cell in row] for row in short.rows]
    assert texts == [  # strong and RAP were not published; static ones are those of the clean evaluation
        ["max", "2", ".450", ".500", "-.050", "yes", ".300", ".500", "-.200"],
        ["CAP", "1", ".450", ".900", "-.450", "no", ".300", ".900", "-.600"],
    ]
    assert [row[0].text for row in full.rows] == ["max, ours", "max, paper", "CAP, ours", "CAP, paper"]
    assert full.rows[0][4].text == ".450 (-.050)"
    assert published_tables(replace(grid, published=None), rows) is None


def test_a_difference_that_is_nothing_has_no_sign(made):
    grid, rows, _, _ = made
    rows = [replace(row, scores={**row.scores, "dynamic_f1": 0.4999}) for row in rows]
    assert published_tables(grid, rows)[0].rows[0][4].text == ".000"


def test_the_page_says_what_differs(made):
    text = (made[2] / "out" / "report.html").read_text()
    assert "Dogs &amp; sirens" in text
    assert "<code>eight</code> clips" in text
    assert "Not finished: CAP (1 of 2 runs)." in text
    assert "198 of the 2,000 test" in text
    assert "earmark reproduce it" in text
    assert "Trained with event times and therefore not in the test: strong, with F1 " in text
    assert "<bark>" not in text
    assert "Largest errors" not in text  # there is no sound to listen to


def test_the_bound_of_cap_is_drawn(made):
    assert "bound of CAP" in (made[2] / "out" / "figures" / "learned-alpha.svg").read_text()


def test_runs_with_other_settings_are_named(made, tmp_path):
    grid, _, place, _ = made
    other = grid.selected(changes={"epochs": "77"}, systems=["max", "strong"])
    write_grid_report(other, gather(other, place / "out"), tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "Trained with settings other than the grid's: max-cnn-seed0" in html.unescape(text)
    assert re.search(r", \.\.\. \(training\.epochs \d+ instead of 77\)", text)


def test_kept_runs_replace_their_folders(made, tmp_path, monkeypatch):
    """Scores, counts, settings and tables are the same, and nothing is trained again."""
    grid, rows, place, _ = made
    keep_runs(rows, tmp_path)
    kept = gather(grid, tmp_path)
    assert [replace(row, folder=Path(), kept=None) for row in kept] == [replace(row, folder=Path()) for row in rows]
    for row, other in zip(rows, kept, strict=True):
        saved, again = row.saved(), other.saved()
        for kind in ("static_counts", "pooled_counts", "dynamic_counts"):
            np.testing.assert_equal(getattr(again, kind).arrays(), getattr(saved, kind).arrays())
        np.testing.assert_equal(again.scores["event"], saved.scores["event"])
        np.testing.assert_equal(again.scores["dynamic"], saved.scores["dynamic"])
        assert again.pool == saved.pool == row.cell.settings.pool["name"]
    write_grid_report(grid, kept, tmp_path)
    for name in ("table-clean.md", "table-table-1.tex", "published.md", "report.md"):
        assert (tmp_path / name).read_text() == (place / "out" / name).read_text()
    statuses, finished = [], grid.selected(systems=["max", "rap", "strong"])
    monkeypatch.setattr("earmark.experiment.cells.run", None)
    assert run_grid(finished, tmp_path, cache=tmp_path, on_cell=lambda cell, status: statuses.append(status))
    assert statuses == ["kept"] * 6
    with pytest.raises(ArgumentError, match=r"was run with training\.epochs = \d+, now 77; restore the setting"):
        run_grid(finished.selected(changes={"epochs": 77}), tmp_path, cache=tmp_path)
    evaluated_otherwise = replace(finished, evaluations={"other": finished.evaluations["clean"]}, published=None)
    with pytest.raises(ArgumentError, match="was evaluated with other settings than the grid's, and its weights"):
        run_grid(evaluated_otherwise, tmp_path, cache=tmp_path)


def test_kept_runs_are_added_to(made, split_three_ways, tmp_path):
    rows = made[1]
    keep_runs(rows[:3], tmp_path)
    keep_runs(rows[2:], tmp_path)
    keep_runs(split_three_ways[1], tmp_path)  # of other clips
    keep_runs(gather(made[0], tmp_path), tmp_path)
    every = [*rows, *split_three_ways[1]]
    assert list(read_runs(tmp_path / "runs.npz")) == [(row.cell.name, row.evaluation) for row in every]
    assert [row.scores for row in gather(split_three_ways[0], tmp_path)] == [row.scores for row in split_three_ways[1]]
    assert gather(made[0], tmp_path)[0].saved().scores["event"] == rows[0].saved().scores["event"]


def test_runs_kept_on_another_machine_are_added_to(made, tmp_path):
    (tmp_path / "there").mkdir()
    keep_runs(made[1][:4], tmp_path / "here")
    shutil.copy(tmp_path / "here" / "runs.npz", tmp_path / "there")
    keep_runs(made[1], tmp_path / "there")
    assert len(read_runs(tmp_path / "there" / "runs.npz")) == len(made[1])
    (tmp_path / "there" / "runs.npz").write_text("mine")
    with pytest.raises(DataError, match=r"runs\.npz"):
        keep_runs(made[1], tmp_path / "there")
    assert (tmp_path / "there" / "runs.npz").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("0.static.reference", None, "max-cnn-seed0, clean: static.reference is missing"),
        ("0.dynamic.fp", lambda array: array + 99, "max-cnn-seed0, clean: dynamic: expected counts that add up"),
        ("0.dynamic.tp", lambda array: array[..., 1:], r"0.dynamic.tp: expected shape \(8, 2, 14\), got \(8, 2, 13\)"),
        (
            "about",
            lambda array: np.full(len(array), "{}"),
            "max-cnn-seed0, clean: config: expected a table, got nothing",
        ),
        ("groups", lambda array: array + 1, "1.filenames is missing"),
        ("0.classes", lambda array: array[::-1], "max-cnn-seed0, clean: .* got others"),
    ],
)
def test_damaged_kept_runs_are_refused_with_a_line(made, tmp_path, name, change, message):
    keep_runs(made[1], tmp_path)
    with np.load(tmp_path / "runs.npz") as file:
        arrays = dict(file)
    array = arrays.pop(name)
    np.savez(tmp_path / "runs.npz", **arrays, **({} if change is None else {name: change(array)}))
    with pytest.raises(DataError, match=message) as error:
        gather(made[0], tmp_path)
    assert str(tmp_path / "runs.npz") in str(error.value)


def test_a_grid_with_nothing_published_speaks_for_itself(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made[2] / "out" / "cells", tmp_path / "cells")
    text = (made[2] / "grid.toml").read_text()
    (tmp_path / "grid.toml").write_text(text[: text.index("[published]")])
    code, out, err = call(monkeypatch, capsys, tmp_path / "grid.toml", "--out", tmp_path, "--only-report")
    assert code == 0, err
    first, *lines = (line.split() for line in out.splitlines())
    assert " ".join(first) == "Evaluation clean: means over runs"
    rows = {words[0]: words[1:] for words in lines if words}
    own = [row.scores["dynamic_f1"] for row in made[1] if (row.evaluation, row.cell.system) == ("clean", "max")]
    assert rows["max"][:2] == ["2", f"{np.mean(own):.3f}".lstrip("0")]
    page = (tmp_path / "report.html").read_text()
    assert "About these runs" in page
    assert "Differences from the paper" not in page


def test_a_grid_without_runs_is_refused(made, tmp_path):
    with pytest.raises(DataError, match="no run of this grid is finished"):
        write_grid_report(made[0], [], tmp_path)


def test_folds_are_ranked_as_in_table_3(split_three_ways, tmp_path):
    grid, rows, _ = split_three_ways
    clear = {"max": 0.2, "RAP 1e-3": 0.6, "CAP": 0.61, "strong": 0.9}
    rows = [replace(r, scores=dict.fromkeys(r.scores, clear[r.cell.system] + 0.001 * r.cell.fold)) for r in rows]
    table = fold_table(grid, rows, "clean")
    assert table.caption == "Evaluation clean: means over 3 splits"
    marks = {row[0].text: (row[7].best, row[7].tied) for row in table.rows}  # dynamic F1; strong is not in the test
    assert marks == {"max": (False, False), "RAP 1e-3": (False, True), "CAP": (True, False), "strong": (False, False)}
    assert "Bold: best of the column. Underlined: not distinguishable from it (Friedman" in table.note
    assert table.rows[-1][0].text == "strong"
    assert table.rows[0][7].text == ".201"
    assert table.rows[0][7].interval == pytest.approx(
        (0.201 - 4.3027 * 0.001 / 3**0.5, 0.201 + 4.3027 * 0.001 / 3**0.5), abs=1e-6
    )
    alone = fold_table(grid, [row for row in rows if row.cell.fold == 0], "clean")
    assert "Nothing is marked: the test needs two systems with two splits in common" in alone.note
    assert not any(cell.best or cell.tied for row in alone.rows for cell in row)


def test_bars_over_folds_are_of_a_bootstrap(split_three_ways):
    """Fig. 12; Student's would be five times as wide."""
    _, rows, _ = split_three_ways
    entry = System("max", tuple(r.saved() for r in rows if (r.evaluation, r.cell.system) == ("clean", "max")))
    f1 = [[saved.scores["dynamic"]["per_class"][label]["f1"] for label in CLASSES] for saved in entry.evaluations]
    interval = reporting._fold_f1(entry)
    assert interval.value == pytest.approx(np.mean(f1, axis=0))
    assert interval.low == pytest.approx(np.min(f1, axis=0))  # one in 27 resamples has the lowest fold only
    assert interval.high == pytest.approx(np.max(f1, axis=0))


def test_with_folds_the_best_system_is_the_example(split_three_ways):
    _, rows, _ = split_three_ways
    clear = {"max": 0.2, "RAP 1e-3": 0.6, "CAP": 0.61, "strong": 0.9}
    rows = [replace(r, scores=dict.fromkeys(r.scores, clear[r.cell.system])) for r in rows]
    assert reporting._best_row(rows, reporting._Evaluation("clean", (), None, {})).cell.system == "CAP"


def test_a_grid_of_folds_leaves_a_page(split_three_ways, tmp_path):
    grid, rows, _ = split_three_ways
    written = write_grid_report(grid, rows, tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "Friedman test over the common splits" in html.unescape(text)
    assert "Comparison with the paper" in text
    assert "Static scores say whether a class was detected in the right recordings" in text
    assert {path.suffix for path in written} == {".csv", ".md", ".tex", ".png", ".svg", ".html"}


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["earmark", "reproduce", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code, *capsys.readouterr()


def test_the_report_is_rebuilt_without_data(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made[2] / "out" / "cells", tmp_path / "cells")
    given = (made[2] / "grid.toml", "--out", tmp_path, "--only-report", "--pools", "cap,max")
    code, out, err = call(monkeypatch, capsys, *given)
    assert code == 0, err
    assert "F1 beside Table I of the paper" in out
    assert max(map(len, out.split("Dynamic:")[0].splitlines())) <= 80
    assert str(tmp_path / "report.html") in out
    text = (tmp_path / "table-clean.md").read_text()
    assert text.index("| CAP |") < text.index("| max |")
    assert "RAP" not in text
    code, out, err = call(monkeypatch, capsys, *given, "--json")
    assert json.loads(out)["rows"] == 6


def test_what_cannot_be_reproduced_is_one_line(made, tmp_path, monkeypatch, capsys):
    code, _, err = call(monkeypatch, capsys, "urban-sed", "--out", tmp_path)
    assert (code, err.count("\n")) == (2, 1)
    assert "--data is needed: the folder with urban-sed" in err
    code, _, err = call(monkeypatch, capsys, "urban-sed", "--out", tmp_path, "--only-report")
    assert code == 2
    assert "no run of this grid is finished" in err
    code, _, err = call(monkeypatch, capsys, "urban-sed", "--out", tmp_path, "--only-report", "--pools", "rip")
    assert code == 2
    assert "system='rip' is not known; did you mean 'rap'" in err


def test_a_failed_run_costs_no_table(made, tmp_path, monkeypatch, capsys):
    shutil.copytree(made[2] / "out" / "cells", tmp_path / "cells")

    def fail(*args, **options):
        raise TrainingError("1 of the runs failed")

    monkeypatch.setattr("earmark.experiment.run_grid", fail)
    code, out, err = call(
        monkeypatch, capsys, made[2] / "grid.toml", "--data", tmp_path, "--out", tmp_path, "--pools", "max"
    )
    assert code == 2
    assert "1 of the runs failed" in err
    assert (tmp_path / "report.html").exists()
    assert "F1 beside Table I" in out


def test_a_finished_run_is_kept_at_once_and_reported_later(made, tmp_path, monkeypatch, capsys):
    place = made[2]
    given = place / "grid.toml", "--data", tmp_path, "--out", tmp_path
    shutil.copytree(place / "out" / "cells", tmp_path / "cells")
    kept = []

    def run(grid, out, *, on_cell, **options):
        for cell in grid.cells[:2]:
            on_cell(cell, "done")
            kept.append({name for name, _ in read_runs(out / "runs.npz")})
        return True

    monkeypatch.setattr("earmark.experiment.run_grid", run)
    code, out, err = call(monkeypatch, capsys, *given, "--no-report")
    assert (code, out) == (0, f"{tmp_path}: 7 of 8 runs finished\n"), err
    assert kept == [{"max-cnn-seed0"}, {"max-cnn-seed0", "RAP-1e-3-cnn-seed0"}]
    assert not (tmp_path / "report.html").exists()
    shutil.rmtree(tmp_path / "cells")
    assert json.loads(call(monkeypatch, capsys, *given, "--no-report", "--json")[1])["rows"] == 14
    assert call(monkeypatch, capsys, *given, "--only-report", "--pools", "max")[0] == 0
    assert (tmp_path / "report.html").exists()
    code, _, err = call(monkeypatch, capsys, *given, "--only-report", "--no-report")
    assert (code, err) == (2, "earmark: --only-report and --no-report exclude each other; choose one\n")


def test_an_archive_of_table_1_keeps_results_but_no_weights_and_is_restored(made, tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("table_1", ROOT / "experiments" / "table_1.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    grid, _, place, _ = made
    shutil.copytree(place / "out", tmp_path / "out")
    for name in ("features/train/index.md", "cells/max-cnn-seed0/model.safetensors", "cells/max-cnn-seed0/last.ckpt"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("large")
    keep_runs(made[1], tmp_path / "out")
    tool.write_archive(tmp_path / "out", tmp_path / "a.tar.gz")
    monkeypatch.setattr(tool, "load_grid", lambda name: grid)

    def run(grid, out, **options):
        options["on_progress"](Progress("training"))
        return True

    monkeypatch.setattr(tool, "run_grid", run)
    words = ["table_1", str(tmp_path / "scapes"), str(tmp_path / "new"), "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", [*words, "--restore", str(tmp_path / "a.tar.gz")])
    tool.main()
    shown = capsys.readouterr().out
    assert re.search(r"All: 7 of 8 runs\n +start +\d+ s\n +training +\d+ s\n +report +\d+ s\n\d+ s .* to table", shown)
    assert {"runs.npz", "results.csv", "report.html"} <= {path.name for path in (tmp_path / "new").iterdir()}
    more = [replace(row, cell=replace(row.cell, seed=7)) for row in made[1]]
    keep_runs(more, tmp_path / "new")  # the archive has the record of earmark's files, so it may be continued
    write_grid_report(grid, [*gather(grid, tmp_path / "new"), *more], tmp_path / "new")
    assert not (tmp_path / "new" / "cells").exists()
    assert not (tmp_path / "new" / "features").exists()
    assert set(json.loads((tmp_path / "new" / "times.json").read_text())) == {"start", "training", "report"}


def test_an_interrupted_grid_says_how_to_go_on(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("earmark.experiment.run_grid", lambda *args, **options: False)
    code, _, err = call(monkeypatch, capsys, made[2] / "grid.toml", "--data", tmp_path, "--out", tmp_path)
    assert code == 130
    assert "Interrupted, 0 evaluations done; run the same command again to continue" in " ".join(err.split())
    assert (tmp_path / "results.csv").exists()
