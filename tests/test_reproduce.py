"""`earmark reproduce` and what it leaves to read, from evaluations made by hand; and the results that are kept."""

import csv
import html
import importlib.util
import json
import re
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawing import drawn

from earmark import audio
from earmark.annotations import LabelTable
from earmark.cli import main
from earmark.errors import DataError, TrainingError
from earmark.evaluation.scoring import EvaluationOptions, evaluate_scores
from earmark.experiment import gather, load_grid, write_results
from earmark.experiment.cells import changed_settings
from earmark.experiment.results import by_system
from earmark.features.config import mel_matrix
from earmark.inference.scores import RecordingScores
from earmark.reporting.grid import write_grid_report
from earmark.reporting.grid_tables import fold_table, mean_scores, published_tables
from earmark.settings import load_recipe
from earmark.synthesis import plan_from
from earmark.synthesis.sources import open_bank

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
        about = {"data": "folder:nowhere", "reference": spec.reference, "split": "test", "seed": cell.seed}
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
    figures = ("f1-by-class", "learned-alpha", "published-f1")
    assert names == {
        *("results.csv", "report.html"),
        *(f"{name}{suffix}" for name in tables for suffix in (".md", ".tex")),
        *(f"figures/{name}{suffix}" for name in figures for suffix in (".png", ".svg")),
    }
    assert all(path.stat().st_size for path in written)


def test_where_the_data_are_at_hand_durations_and_a_clip_are_drawn(made, tmp_path):
    """Figs. 3 to 5 and 9. The clip is the first with both classes; unless it cannot be read."""
    grid, rows, _, _ = made
    labels = labels_of(None)
    (tmp_path / "data").mkdir()
    for name in labels.filenames:
        audio.write(tmp_path / "data" / name, np.random.default_rng(0).normal(0, 0.1, int(SECONDS * 8000)), 8000)
    lines = [f"{r.filename}\t{r.onset}\t{r.offset}\t{r.label}\ttest" for r in labels if r.has_times]
    silent = [f"{name}\t\t\t\ttest" for name in labels.filenames if not any(r.present for r in labels.of(name))]
    (tmp_path / "data" / "labels.tsv").write_text(
        "\n".join(["filename\tonset\toffset\tlabel\tsplit", *lines, *silent]) + "\n"
    )
    there = grid.selected(data=f"folder:{tmp_path / 'data'}")
    with drawn():
        written = {path.name for path in write_grid_report(there, rows, tmp_path / "out")}
    assert {"event-durations.png", "example.png", "example.svg"} <= written
    assert "Output of the best system for the clip" in (tmp_path / "out" / "report.html").read_text()
    for path in (tmp_path / "data").glob("*.wav"):
        path.write_bytes(b"no sound")
    assert "example.png" not in {path.name for path in write_grid_report(there, rows, tmp_path / "again")}


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
    marks = {row[0].text: row[7].best for row in table.rows}  # dynamic F1; strong is not in the test
    assert marks == {"max": False, "RAP 1e-3": True, "CAP": True, "strong": False}
    assert table.rows[-1][0].text == "strong"
    assert table.rows[0][7].text == ".201"
    assert table.rows[0][7].interval == pytest.approx(
        (0.201 - 4.3027 * 0.001 / 3**0.5, 0.201 + 4.3027 * 0.001 / 3**0.5), abs=1e-6
    )
    alone = fold_table(grid, [row for row in rows if row.cell.fold == 0], "clean")
    assert "Nothing is marked: the test needs two systems with two splits in common" in alone.note
    assert not any(cell.best for row in alone.rows for cell in row)


def test_a_grid_of_folds_leaves_a_page(split_three_ways, tmp_path):
    grid, rows, _ = split_three_ways
    written = write_grid_report(grid, rows, tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert "Friedman test over the common splits" in html.unescape(text)
    assert "Comparison with the paper" in text
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


def test_an_interrupted_grid_says_how_to_go_on(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("earmark.experiment.run_grid", lambda *args, **options: False)
    code, _, err = call(monkeypatch, capsys, made[2] / "grid.toml", "--data", tmp_path, "--out", tmp_path)
    assert code == 130
    assert "Interrupted, 0 evaluations done; run the same command again to continue" in " ".join(err.split())
    assert (tmp_path / "results.csv").exists()


KEPT = ROOT / "results" / "urban-sed"
PAGE = ROOT / "docs" / "reproduction.md"


@pytest.fixture(scope="module")
def kept():
    """Rows of the results that are kept in the repository."""
    return gather(load_grid("urban-sed"), KEPT)


def test_the_kept_tables_are_those_of_the_kept_runs(kept, tmp_path):
    write_results(kept, tmp_path / "results.csv")
    assert (KEPT / "results.csv").read_text() == (tmp_path / "results.csv").read_text()
    short, full = published_tables(load_grid("urban-sed"), kept)
    text = (KEPT / "published.md").read_text()
    without_intervals = re.sub(r" \(\.\d+\N{EN DASH}\.\d+\)", "", text)
    assert short.to_markdown() in without_intervals
    assert full.to_markdown() in text
    assert not any(changed_settings(row.folder.parent, row.cell) for row in kept)


def test_the_page_about_the_reproduction_has_the_tables_of_the_results():
    spec = importlib.util.spec_from_file_location("fill_tables", ROOT / "tools" / "fill_tables.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = PAGE.read_text()
    assert len(tool.TABLE.findall(text)) == 3
    assert tool.filled(text) == text, "run: tools/fill_tables.py docs/reproduction.md"


def test_what_the_page_about_the_reproduction_says_is_so(kept):
    """Each sentence that rests on results, whatever their last digits."""
    mean = {
        (name, system): mean_scores(own)
        for name in ("clean", "table-1")
        for system, own in by_system(row for row in kept if row.evaluation == name).items()
    }
    systems = list(load_grid("urban-sed").systems)
    weak = systems[:-1]
    clean = {system: mean["clean", system] for system in systems}
    table_1 = {system: mean["table-1", system] for system in systems}
    f1 = {system: own["dynamic_f1"] for system, own in clean.items()}
    order = sorted(systems, key=lambda s: -f1[s])
    behind = {
        name: {s: round(own["strong"]["dynamic_f1"] - own[s]["dynamic_f1"], 2) for s in systems}
        for name, own in (("clean", clean), ("table-1", table_1))
    }
    assert {behind["clean"][s] for s in ("CAP", "RAP 1e-3", "RAP 1e-4")} <= {0.03, 0.04}
    assert behind["clean"]["auto"] == 0.05
    assert [behind["table-1"][s] for s in ("CAP", "RAP 1e-3", "RAP 1e-4", "auto")] == [0.02, 0.02, 0.05, 0.07]
    assert order[0] == "strong"
    assert set(order[1:4]) == {"CAP", "RAP 1e-3", "RAP 1e-4"}
    assert order[4:6] == ["auto", "max"]
    assert set(order[-2:]) == {"mean", "RAP 1e-2"}
    assert all(f1["strong"] - f1[name] < 0.05 for name in order[1:4])
    assert max(weak, key=lambda s: clean[s]["dynamic_precision"]) == "max"
    assert max(weak, key=lambda s: clean[s]["dynamic_recall"]) == "mean"
    assert min(weak, key=lambda s: clean[s]["dynamic_recall"]) == "max"
    assert min(weak, key=lambda s: clean[s]["dynamic_precision"]) == "mean"
    assert sorted(weak, key=lambda s: clean[s]["dynamic_error_rate"])[:2] == ["RAP 1e-4", "auto"]
    best = max(f1[name] for name in weak)
    assert all(best - f1[name] < 0.02 for name in ("CAP", "RAP 1e-3", "RAP 1e-4"))
    gain = {system: table_1[system]["dynamic_f1"] - f1[system] for system in systems}
    assert {system for system, value in gain.items() if value > 0.005} == {"mean", "RAP 1e-2"}
    assert {system for system, value in gain.items() if abs(value) < 0.005} == {"soft-max"}
    assert clean["mean"]["static_maximum_recall"] > 0.98
    assert clean["mean"]["static_pooled_recall"] < 0.5
    for rule in ("maximum", "pooled"):
        near = [clean[s][f"static_{rule}_f1"] for s in ("auto", "CAP", "RAP 1e-3", "RAP 1e-4", "max")]
        assert max(near) - min(near) < 0.02
        assert clean["strong"][f"static_{rule}_f1"] > max(near)
    assert max(weak, key=lambda s: clean[s]["static_pooled_f1"]) != "auto"
    assert clean["auto"]["static_pooled_f1"] < clean["max"]["static_pooled_f1"]
    assert [round(f1[s], 3) for s in ("mean", "RAP 1e-2", "soft-max")] == [0.360, 0.419, 0.482]
    precision = [clean[f"RAP 1e-{k}"]["dynamic_precision"] for k in (2, 3, 4)]
    assert precision == sorted(precision)
    paper = load_grid("urban-sed").published.scores
    away = {system: round(table_1[system]["dynamic_f1"] - paper[system][3], 3) for system in systems}
    assert round(paper["RAP 1e-2"][3] - paper["mean"][3], 3) == 0.011
    assert {system for system in systems if away[system] > 0} == {"RAP 1e-2"}
    assert {system for system in systems if abs(away[system]) > 0.05} == {"RAP 1e-4"}
    assert set(sorted(systems, key=away.get)[:3]) == {"max", "auto", "RAP 1e-4"}
    assert len([row for row in kept if row.evaluation == "clean"]) == 3 * len(systems)
    for system in ("auto", "RAP 1e-4"):
        assert table_1[system]["dynamic_f1"] < table_1["soft-max"]["dynamic_f1"]
        assert paper[system][3] > paper["soft-max"][3]
        assert f1[system] > f1["soft-max"]
    assert all(round(away[system], 2) == -0.05 for system in ("auto", "max"))
    alpha = {(r.cell.system, r.cell.seed): r.saved().scores["alpha"] for r in kept if r.evaluation == "clean"}
    for (system, _), own in alpha.items():
        if system == "CAP":
            assert np.allclose(own, np.log(25), atol=1e-4)
        elif system in ("auto", "RAP 1e-4"):
            assert min(own) > np.log(25)
        elif system == "RAP 1e-2":
            assert max(own) < 1


def test_what_the_page_says_about_the_reasons_is_so(kept):
    """Experiments beside the nine systems, a sentence at a time."""
    systems = ("RAP 1e-4", "CAP", "auto")
    rows = gather(load_grid(ROOT / "experiments" / "sources.toml"), ROOT / "results" / "urban-sed-sources")
    f1 = {(r.evaluation, r.cell.system, r.cell.dataset): r.scores["dynamic_f1"] for r in rows}
    for name in ("clean", "table-1"):
        own = by_system(row for row in kept if row.evaluation == name)
        f1 |= {(name, system, "all"): mean_scores(own[system])["dynamic_f1"] for system in systems}
    paper = load_grid("urban-sed").published.scores
    doublings = np.log2(798 / 268)
    assert round(doublings, 1) == 1.6
    made_up = {}
    for system in systems:
        steps = [f1["table-1", system, part] for part in ("quarter", "half", "all")]
        assert all(0.015 < gain < 0.065 for gain in np.diff(steps))
        assert max(np.diff([f1["clean", system, part] for part in ("quarter", "half", "all")])) < 0.095
        made_up[system] = doublings * (steps[2] - steps[1]) / (paper[system][3] - steps[2])
        for part in ("quarter", "half"):
            assert abs(f1["authors-middle", system, part] - f1["table-1", system, part]) < 0.003
    assert {system: round(value, 1) for system, value in made_up.items()} == {"RAP 1e-4": 0.8, "CAP": 3.0, "auto": 1.9}
    assert round(f1["clean", "CAP", "all"] - f1["clean", "CAP", "half"], 2) == 0.06
    (early,) = (r for r in rows if (r.cell.system, r.cell.dataset, r.evaluation) == ("RAP 1e-4", "half", "clean"))
    assert early.best_epoch == 7
    rows = gather(load_grid(ROOT / "experiments" / "otherwise.toml"), ROOT / "results" / "urban-sed-auto")
    auto = {(row.evaluation, row.cell.system): round(row.scores["dynamic_f1"], 3) for row in rows}
    plain, alphas = auto_runs(kept, "table-1"), [np.mean(r.saved().scores["alpha"]) for r in auto_rows(kept, "table-1")]
    assert (auto["table-1", "auto, 32 bits"], plain) == (0.470, [0.448, 0.450, 0.464])
    assert [row.best_epoch for row in auto_rows(kept, "clean")] == [26, 47, 36]
    assert 6 < min(alphas) < max(alphas) < 8.5
    (short,) = (r for r in rows if (r.cell.system, r.evaluation) == ("auto, no pitch variants", "clean"))
    assert (short.best_epoch, round(np.mean(short.saved().scores["alpha"]), 1)) == (6, 2.6)
    assert (auto["table-1", short.cell.system], auto["clean", short.cell.system]) == (0.485, 0.538)
    assert (min(auto_runs(kept, "clean")), max(auto_runs(kept, "clean"))) == (0.551, 0.567)


def test_what_the_page_says_about_the_sound_is_so(shared):
    bank = open_bank(shared / "urbansed" / "soundbank")
    found = {split: Counter() for split in ("train", "validate", "test")}
    for split, own in found.items():
        for label in bank.classes:
            own[label] = len({Path(name).name.split("-")[0] for name in bank.sources(label, split)})
    assert {split: (own.total(), own["jackhammer"]) for split, own in found.items()} == {
        "train": (268, 10),
        "validate": (64, 1),
        "test": (124, 4),
    }
    there = {path.stem for path in (shared / "urbansed" / "soundbank").rglob("*.ogg")}
    asked = [e for s in plan_from(shared / "urbansed" / "events.csv.gz") if s.split == "validate" for e in s.events]
    assert asked
    assert not {Path(event.source_file).stem for event in asked} & there
    config = load_recipe("paper").features
    heard = np.fft.rfftfreq(config.n_fft, 1 / config.rate) < 22050 / 2
    assert (mel_matrix(config)[:, heard] == 0).all(axis=1).sum() == 20


def auto_rows(kept, evaluation):
    return [row for row in kept if (row.evaluation, row.cell.system) == (evaluation, "auto")]


def auto_runs(kept, evaluation):
    return [round(row.scores["dynamic_f1"], 3) for row in auto_rows(kept, evaluation)]


def test_what_the_page_says_about_the_recipe_best_is_so(kept):
    rows = gather(load_grid(ROOT / "experiments" / "best.toml"), ROOT / "results" / "urban-sed-best")
    validate = {row.cell.system: row.scores for row in rows if row.evaluation == "validate"}
    f1 = {system: round(scores["dynamic_f1"], 3) for system, scores in validate.items()}
    assert max(f1, key=f1.get) == "plain"
    changed = [system for system in f1 if system not in ("plain", "paper's schedule")]
    assert len(changed) == 7
    others = sorted(f1[system] for system in changed)
    assert (f1["plain"], f1["paper's schedule"], others[0], others[-1]) == (0.575, 0.567, 0.555, 0.567)
    test = {row.cell.system: round(row.scores["dynamic_f1"], 3) for row in rows if row.evaluation == "clean"}
    assert [test[s] for s in ("plain", "both, fixed", "both", "mixup")] == [0.582, 0.587, 0.584, 0.583]
    assert (round(f1["plain"] - f1["fixed"], 2), round(test["plain"] - test["fixed"], 3)) == (0.01, 0.005)
    helped = ("masks", "mixup", "both", "both, fine", "both, fixed")
    clips = sorted(round(validate[system]["static_pooled_f1"], 3) for system in helped)
    assert (round(validate["plain"]["static_pooled_f1"], 3), clips[0], clips[-1]) == (0.703, 0.709, 0.718)
    assert round(validate["paper's schedule"]["static_pooled_f1"], 3) == 0.716
    for system in helped:
        assert validate[system]["dynamic_precision"] < validate["plain"]["dynamic_precision"]
        assert validate[system]["dynamic_recall"] > validate["plain"]["dynamic_recall"]
    kept_beyond = csv.DictReader((ROOT / "results" / "urban-sed-beyond" / "results.csv").read_text().splitlines())
    beyond = {row["system"]: row for row in kept_beyond if row["evaluation"] == "clean"}
    columns = ("dynamic_f1", "dynamic_precision", "dynamic_recall")
    assert [round(float(beyond["best"][column]), 3) for column in columns] == [0.663, 0.676, 0.65]
    assert round(float(beyond["strong"]["dynamic_f1"]), 3) == 0.695
    assert load_grid(ROOT / "experiments" / "beyond.toml").cells[0].settings == load_recipe("best")
    cap = [round(row.scores["dynamic_f1"], 3) for row in kept if (row.evaluation, row.cell.system) == ("clean", "CAP")]
    assert (min(cap), max(cap)) == (0.572, 0.575)
