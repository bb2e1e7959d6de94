"""Grids: read, run, cut, gone on with, gathered."""

import csv
import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import warm
from in_process import map_here
from small_recipe import SMALL

from earmark.cli import main
from earmark.detection.detector import load
from earmark.errors import ArgumentError, DataError, TrainingError, WorkerError
from earmark.experiment import gather, load_grid, run_grid, write_results
from earmark.experiment.cells import changed_settings, data_of, settings_of
from earmark.experiment.grid import Cell, EvaluationSpec
from earmark.experiment.kept import KeptEvaluation
from earmark.experiment.results import COLUMNS, MORE_COLUMNS, Row, compare_folds, describe_data, scores_of
from earmark.reporting.grid import write_grid_report
from earmark.settings import load_recipe

GRID = """
title = "Hums and clicks"
data = "{data}"
recipe = "{recipe}"
seeds = {seeds}

[systems]
max = {{ pool = "max" }}
"RAP 1e-3" = {{ pool = "rap", penalty = 1e-3 }}
strong = {{ pool = "max", supervision = "strong" }}

[evaluations.clean]

[evaluations.other]
align = "authors"
segment = 0.5
"""
PUBLISHED = '[published]\ntable = "Table I"\nstatic_rule = "pooled"\nscores = {}\n'
RECIPE = f"""{SMALL}[training]
patch = 1.0
batch_size = 4
steps = 4
epochs = 2
"""


@pytest.fixture(scope="module")
def folder(recordings):
    (recordings / "recipe.toml").write_text(RECIPE)
    return recordings


@pytest.fixture
def grid_file(folder, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(data=folder, recipe=folder / "recipe.toml", seeds=1))
    return path


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The grid, run from beginning to end: the grid, its folder, the cache, and what was told."""
    place = tmp_path_factory.mktemp("whole")
    (place / "grid.toml").write_text(GRID.format(data=folder, recipe=folder / "recipe.toml", seeds=1))
    grid, heard = load_grid(place / "grid.toml"), []
    assert run_grid(grid, place / "out", cache=place / "cache", on_cell=lambda c, w: heard.append((c.system, w)))
    return grid, place / "out", place / "cache", heard


def test_the_grid_of_operators_changes_nothing_but_network_and_operator():
    grid = load_grid(Path(__file__).parents[1] / "experiments" / "operators.toml")
    base = load_recipe("best").changed({"rounds": 0})
    for cell in grid.cells:
        assert replace(cell.settings, network=base.network, pool=base.pool) == base
        assert cell.settings.network["reduction"] == base.network["reduction"]  # frames of the same length
    assert {cell.settings.pool["name"] for cell in grid.cells} >= {"linear", "linear-auto", "linear-cap", "linear-rap"}
    assert {cell.network for cell in grid.cells} == {"cnn", "vgg-gru"}


def test_the_papers_grids_have_the_papers_systems():
    loaded = {name: load_grid(name) for name in ("dcase2017", "medleydb", "urban-sed")}
    cells = {name: grid.cells for name, grid in loaded.items()}
    assert {name: len(own) for name, own in cells.items()} == {"dcase2017": 24, "medleydb": 90, "urban-sed": 27}
    assert [c.system for c in cells["urban-sed"][:9]] == list(loaded["urban-sed"].systems)  # a seed at a time
    strong = next(c for c in cells["urban-sed"] if c.system == "strong")
    assert (strong.settings.training.supervision, strong.settings.pool["name"]) == ("strong", "max")
    rap = next(c for c in cells["urban-sed"] if c.system == "RAP 1e-2")
    assert rap.settings.pool == {"name": "rap", "penalty": 0.01}
    assert {c.settings.training.seed for c in cells["urban-sed"]} == {0, 1, 2}
    for grid in loaded.values():
        assert list(grid.published.scores) == list(grid.systems)
    for name, table in (("urban-sed", "table-1"), ("dcase2017", "table-2"), ("medleydb", "table-3")):
        told = loaded[name].published
        assert (told.evaluation, told.static_evaluation) == (table, "clean")
        assert loaded[name].evaluations[table].align == "authors"
        assert (loaded[name].evaluations[table].reference == "authors") == (name == "urban-sed")
    assert {c.settings.training.steps for c in cells["medleydb"]} == {2048}
    assert {c.settings.training.steps for c in cells["dcase2017"]} == {512}


def test_published_numbers_are_the_tables(shared):
    """A digit mistyped there would be compared with for ever: the paper's source has them too."""
    text = (shared.parent / "paper" / "paper.tex.txt").read_text()
    tables = [part.split(r"\end{tabular}")[0] for part in text.split(r"\begin{tabular}")[1:]]
    for name, table in zip(("urban-sed", "dcase2017", "medleydb"), tables, strict=True):
        lines = table.split("\\cmidrule( r ){5-8}")[1].split("\\\\")
        for system, row in load_grid(name).published.scores.items():
            word = system.replace("RAP 1e-", "RAP $10^{-").lower()
            (line,) = (part for part in lines if re.match(rf"\s*(\\midrule\s*)?{re.escape(word)}\W", part, re.I))
            cells = [cell.split("{")[-1].strip("} \t\n") for cell in line.split("&")[1:]]
            assert [float(cell) for cell in cells] == list(row), (name, system)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("title", "titel"), "key='titel' is not known; did you mean 'title'"),
        (
            ("seeds = 1", "seeds = 0"),
            "seeds: expected a number of seeds up to 1000, or a list of different ones, got 0",
        ),
        (
            ("seeds = 1", "seeds = [1, 1]"),
            r"seeds: expected a number of seeds up to 1000, or a list of different ones, got \[1, 1",
        ),
        (("seeds = 1", "seeds = [-1]"), r"seeds\[0\]: expected a whole number of at least 0, got -1"),
        (('"max" }', '"mix" }'), "system 'max': pool='mix' is not known"),
        (("segment = 0.5", "segment = 0"), "evaluations.other.segment: expected a number above 0, got 0"),
        (('align = "authors"', 'align = "left"'), "evaluations.other.align: expected middle or authors, got 'left'"),
        (('align = "authors"', 'reference = "mine"'), "reference: expected data or authors, got 'mine'"),
        (('align = "authors"', 'split = "train"'), "split: expected test or validate, got 'train'"),
        (('align = "authors"', 'aline = "left"'), "evaluations.other: key='aline' is not known; did you mean 'align'"),
        (("[evaluations.clean]", '[published]\ntable = "I"'), "published.evaluation: expected text, got nothing"),
        (("[evaluations.clean]", PUBLISHED + 'evaluation = "clear"'), "published.evaluation='clear' is not known"),
        (
            ("[evaluations.clean]", PUBLISHED + 'evaluation = "other"\nstatic_evaluation = "clear"'),
            "published.static_evaluation='clear' is not known",
        ),
        (
            ("[evaluations.clean]", PUBLISHED.replace("{}", "{ max = [1.0] }") + 'evaluation = "other"'),
            r"published.scores.max: expected a list of 7 numbers, got \[1.0\]",
        ),
        (('data = "', 'data = {} # "'), "data: expected a table that is not empty, got {}"),
        (
            ('title = "Hums', 'networks = []\ntitle = "Hums'),
            r"networks: expected a list of one or more texts, got \[\]",
        ),
        (("strong = {", '"RAP/1e-3" = {'), "two systems would share a folder"),
        (('max = { pool = "max" }', "max = 1"), "systems.max: expected a table, got 1"),
        (('title = "Hums and clicks"', "title = 3"), "title: expected text that is not empty, got 3"),
        (('title = "Hums and clicks"', ""), "title: expected text that is not empty, got nothing"),
    ],
)
def test_mistakes_in_a_grid_are_named(grid_file, change, message):
    text = grid_file.read_text()
    assert change[0] in text
    grid_file.write_text(text.replace(*change))
    with pytest.raises(ArgumentError, match=message) as caught:
        load_grid(grid_file)
    assert str(grid_file) in str(caught.value)


def test_data_sets_of_a_grid_are_folders(tmp_path):
    (tmp_path / "grid.toml").write_text('title = "x"\ndata = { here = 1 }\n[systems]\nmax = { pool = "max" }\n')
    with pytest.raises(ArgumentError, match=r"data\.here: expected text that is not empty, got 1"):
        load_grid(tmp_path / "grid.toml")


def test_a_grid_that_is_not_there(tmp_path):
    with pytest.raises(ArgumentError, match="grid='urban' is not known; did you mean 'urban-sed'"):
        load_grid("urban")
    with pytest.raises(DataError, match="No such file"):
        load_grid(tmp_path / "no.toml")
    (tmp_path / "bad.toml").write_text("title = ")
    with pytest.raises(DataError, match="not TOML"):
        load_grid(tmp_path / "bad.toml")


def test_a_part_of_a_grid(grid_file):
    grid = load_grid(grid_file)
    part = grid.selected(systems=["strong"], seeds=2, changes={"epochs": "1"})
    assert [(c.name, c.settings.training.epochs) for c in part.cells] == [
        ("strong-cnn-seed0", 1),
        ("strong-cnn-seed1", 1),
    ]
    with pytest.raises(ArgumentError, match="system='string' is not known; did you mean 'strong'"):
        grid.selected(systems=["string"])
    assert list(grid.selected(systems=["rap", "max"]).systems) == ["RAP 1e-3", "max"]
    assert list(load_grid("urban-sed").selected(systems=["softmax", "RAP 1e-4"]).systems) == ["soft-max", "RAP 1e-4"]
    with pytest.raises(ArgumentError, match="folds: expected none, since this grid has no folds, got 3"):
        grid.selected(folds=3)
    with pytest.raises(ArgumentError, match="folds: expected from 1 to 10, got 11"):
        load_grid("medleydb").selected(folds=11)


def test_a_grid_is_run_kept_and_gathered(whole, tmp_path):
    grid, out, cache, heard = whole
    assert heard == [(s, w) for s in grid.systems for w in ("started", "done")]
    rows = gather(grid, out)
    assert [(r.cell.system, r.evaluation) for r in rows] == [(s, j) for s in grid.systems for j in ("clean", "other")]
    assert all(r.epochs == 2 and 1 <= r.best_epoch <= 2 for r in rows)
    assert all(changed_settings(r.config, r.cell) == {} for r in rows)
    other = gather(grid.selected(changes={"epochs": "7"}), out)
    assert changed_settings(other[0].config, other[0].cell) == {"training.epochs": (2, 7)}
    with pytest.raises(
        ArgumentError, match=r"was run with training.epochs = 2, now 7; restore the setting, or run the grid"
    ):
        run_grid(grid.selected(changes={"epochs": "7"}), out, cache=cache)
    write_results(rows, tmp_path / "results.csv")
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [float(line["dynamic_f1"]) for line in table] == pytest.approx(
        [r.saved().scores["dynamic"]["overall"]["f1"] for r in rows], abs=1e-6
    )
    again = []
    for cell in grid.cells:  # without weights it is as finished as with them
        (out / "cells" / cell.name / "model.safetensors").unlink()
    assert run_grid(grid, out, cache=cache, on_cell=lambda c, w: again.append(w))
    assert again == ["kept"] * 3


def test_a_killed_grid_goes_on_and_ends_alike(whole, grid_file, tmp_path):
    script = (
        "import os, signal, sys, pathlib, torch; torch.set_num_threads(1)\n"
        "from earmark.experiment import load_grid, run_grid\n"
        "def kill(progress):\n"
        "    if progress.stage.endswith('(2 of 3), training') and progress.epoch == 2:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "grid, out, cache = sys.argv[1:]\n"
        "run_grid(load_grid(grid), pathlib.Path(out), cache=pathlib.Path(cache), on_progress=kill)\n"
    )
    command = [sys.executable, "-c", script, str(grid_file), str(tmp_path / "a"), str(tmp_path / "cache")]
    threads = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here, or sums would be rounded otherwise
    victim = warm.run(command, capture_output=True, text=True, timeout=300, env=threads)
    assert victim.returncode == -signal.SIGKILL, victim.stderr
    grid, heard = load_grid(grid_file), []
    assert run_grid(grid, tmp_path / "a", cache=tmp_path / "cache", on_cell=lambda c, w: heard.append(w))
    assert heard == ["kept", "started", "done", "started", "done"]
    for cell in grid.cells:
        assert len((tmp_path / "a" / "cells" / cell.name / "log.jsonl").read_text().splitlines()) == 2
    assert [row.scores for row in gather(grid, tmp_path / "a")] == [row.scores for row in gather(grid, whole[1])]


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups")
def test_ctrl_c_ends_a_grid_at_once_and_keeps_what_workers_did(whole, grid_file, tmp_path):
    """To all processes, as a terminal sends it; tests/test_synth_interrupt.py sends it to the first alone too."""
    grid_file.write_text(
        grid_file.read_text().replace('max = { pool = "max" }', 'max = { pool = "max", epochs = 9999 }')
    )
    words = ["reproduce", grid_file, "--out", tmp_path / "a", "--cache", tmp_path / "cache", "--at-once", "2"]
    victim = warm.Popen(
        [sys.executable, "-m", "earmark.cli", *map(str, words)],
        stderr=warm.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        cells, end = tmp_path / "a" / "cells", time.monotonic() + 300
        while not ((cells / "max-cnn-seed0" / "last.ckpt").exists() and list(cells.glob("strong*/clean"))):
            assert victim.poll() is None, victim.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(victim.pid, signal.SIGINT)
        err = " ".join(victim.communicate(timeout=300)[1].split())  # would wait for any that lives
    finally:
        with suppress(ProcessLookupError):
            os.killpg(victim.pid, signal.SIGKILL)
    assert victim.returncode == 130
    assert "Traceback" not in err
    assert "max-cnn-seed0: interrupted" in err
    assert "evaluations done; run the same command again to continue" in err
    ours, theirs = (
        {r.cell.system: r.scores for r in gather(load_grid(grid_file), p)} for p in (tmp_path / "a", whole[1])
    )
    assert ours["RAP 1e-3"] == theirs["RAP 1e-3"]  # of a worker process, and of this one


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_cell_that_fails_costs_nothing_else(grid_file, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr("earmark.experiment.cells.parallel_map", map_here)
    grid_file.write_text(grid_file.read_text().replace('max = { pool = "max" }', "max = { learning_rate = 1e30 }"))
    grid = load_grid(grid_file).selected(systems=["max", "strong"])
    heard = []
    with pytest.raises(TrainingError, match="1 of 2 runs failed, the others are done; the first: the loss became"):
        run_grid(
            grid, tmp_path, cache=tmp_path / "cache", at_once=at_once, on_cell=lambda c, w: heard.append((c.system, w))
        )
    assert ("strong", "done") in heard
    assert [row.cell.system for row in gather(grid, tmp_path)] == ["strong", "strong"]


def test_a_worker_that_dies_is_a_failed_run(grid_file, tmp_path, monkeypatch):
    def lose_worker(*args, **options):
        raise WorkerError("a worker process died")
        yield

    monkeypatch.setattr("earmark.experiment.cells.parallel_map", lose_worker)
    grid = load_grid(grid_file).selected(systems=["max", "strong"])
    with pytest.raises(TrainingError, match=r"^a worker process died"):
        run_grid(grid, tmp_path, cache=tmp_path / "cache", at_once=2)


def test_a_setting_that_came_after_a_run_has_not_changed(tmp_path):
    settings = load_recipe("paper")
    cell = Cell("max", "cnn", None, 0, settings)
    (tmp_path / "config.toml").write_text(settings.to_toml().replace('monitor = "accuracy"\n', ""))
    assert changed_settings(settings_of(tmp_path, {}), cell) == {}
    (tmp_path / "config.toml").write_text(settings.to_toml().replace('monitor = "accuracy"', 'monitor = "f1"'))
    assert changed_settings(settings_of(tmp_path, {}), cell) == {"training.monitor": ("f1", "accuracy")}
    config = settings.to_dict()
    del config["training"]["monitor"]
    kept = {(cell.name, "clean"): KeptEvaluation({"config": config}, (), (), {})}
    assert changed_settings(settings_of(tmp_path / cell.name, kept), cell) == {}
    assert changed_settings(settings_of(tmp_path / cell.name, {}), cell) == {}


def test_what_the_data_were_is_known_when_they_are_gone(folder, grid_file, tmp_path):
    grid = load_grid(grid_file)
    assert describe_data(grid.selected(data=str(tmp_path / "gone")), tmp_path) == {}
    found = describe_data(grid, tmp_path)
    assert found == {"data": str(folder), "clips": {"train": 12, "validate": 6, "test": 6}}
    assert describe_data(grid.selected(data=str(tmp_path / "gone")), tmp_path) == found


def test_folds_are_compared_as_in_the_paper(tmp_path, rng):
    settings = load_recipe("quick")
    rows = []
    for fold in range(10):
        for system, level in (("good", 0.7), ("as good", 0.7), ("bad", 0.4)):
            scores = dict.fromkeys(COLUMNS, level + rng.normal(0, 0.01))
            rows.append(Row(Cell(system, "cnn", fold, 0, settings), "clean", tmp_path, scores, 1, 1))
    found = compare_folds(rows)
    assert sorted(found.indistinguishable) == ["as good", "good"]
    assert compare_folds(rows, "dynamic_error_rate").control == "bad"
    fewer = [row for row in rows if row.cell.system != "bad" or row.cell.fold < 4]
    assert compare_folds(fewer).average_scores == compare_folds([r for r in rows if r.cell.fold < 4]).average_scores
    two = [replace(row, cell=replace(row.cell, network=net)) for row in rows for net in ("cnn", "crnn")]
    assert compare_folds(two).names[:2] == ("good, cnn", "good, crnn")


def test_scores_without_times_have_no_dynamic_ones():
    macro = {"f1": 0.5, "precision": 0.25, "recall": 1.0}
    static = {"maximum": {"macro": macro}, "pooled": {"macro": macro}}
    found = scores_of({"static": static, "dynamic": None, "event": None, "psds": None})
    assert found["static_pooled_recall"] == 1.0
    assert np.isnan(found["dynamic_f1"])
    assert np.isnan(found["dynamic_error_rate"])
    assert list(found) == [*COLUMNS, *MORE_COLUMNS]


def test_cells_have_plain_folder_names():
    assert Cell("RAP 1e-3", "cnn", 4, 2, load_recipe("quick")).name == "RAP-1e-3-cnn-fold4-seed2"
    assert (
        json.dumps(vars(EvaluationSpec())) == '{"reference": "data", "align": "middle", "segment": 1.0, '
        '"split": "test", "with_psds": false, "round": null}'
    )


def test_several_data_sets_share_a_grid(folder, tmp_path, monkeypatch, capsys):
    """Each has its own cells and features, and its own tables; one file has the scores of all."""
    text = GRID.format(data=folder, recipe=folder / "recipe.toml", seeds=1)
    text = text.replace(f'data = "{folder}"', f'data = {{ here = "{folder}", again = "folder:{folder}" }}')
    text = text.replace("[evaluations.other]", '[evaluations.chosen-by]\nsplit = "validate"\n\n[evaluations.other]')
    (tmp_path / "grid.toml").write_text(text)
    grid = load_grid(tmp_path / "grid.toml")
    assert [cell.name for cell in grid.cells][2:4] == ["here-strong-cnn-seed0", "again-max-cnn-seed0"]
    with pytest.raises(ArgumentError, match="expected a grid of one data set, got 2: here, again"):
        _ = grid.source
    with pytest.raises(ArgumentError, match="data: expected none, since this grid names its data sets: here, again"):
        grid.selected(data="elsewhere")
    words = ["reproduce", tmp_path / "grid.toml", "--out", tmp_path / "out", "--cache", tmp_path / "cache"]
    words += ["--pools", "max,strong"]
    monkeypatch.setattr(sys, "argv", ["earmark", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    assert "here, evaluation clean: means over runs" in out
    assert "again, evaluation chosen-by: means over runs" in out
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["again", "here"]
    for dataset in ("here", "again"):
        assert (tmp_path / "out" / dataset / "report.html").exists()
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 3
    scores = {(r["data"], r["system"], r["evaluation"]): [r[c] for c in COLUMNS] for r in rows}
    for system in ("max", "strong"):
        for evaluation in grid.evaluations:
            assert scores["here", system, evaluation] == scores["again", system, evaluation]  # the same clips
        saved = gather(grid.on("here"), tmp_path / "out")
    clips = {row.evaluation: row.saved().scores["clips"] for row in saved}
    assert clips == {"clean": 6, "chosen-by": 6, "other": 6}
    names = {row.evaluation: row.saved().static_counts.filenames for row in saved}
    assert (names["clean"][0], names["chosen-by"][0]) == ("18.wav", "12.wav")


def test_a_cell_judged_otherwise_is_judged_again(grid_file, tmp_path):
    grid = load_grid(grid_file).selected(systems=["max"])
    out, cache = tmp_path / "out", tmp_path / "cache"
    assert run_grid(grid, out, cache=cache)
    other = replace(grid, evaluations={"clean": EvaluationSpec(segment=0.5)})
    assert gather(other, out) == []
    heard = []
    assert run_grid(other, out, cache=cache, on_cell=lambda c, w: heard.append(w))
    assert heard == ["started", "done"]
    (row,) = gather(other, out)
    assert row.saved().scores["segment"] == 0.5
    assert row.epochs == 2  # it was not trained again
    assert gather(replace(grid, evaluations={"clean": EvaluationSpec(segment=0.5, with_psds=True)}), out) == []
    for name in ("last.ckpt", "model.safetensors"):
        (out / "cells" / "max-cnn-seed0" / name).unlink()
    with pytest.raises(ArgumentError, match="evaluated with other settings than the grid's, and its weights are gone"):
        run_grid(grid, out, cache=cache)


def test_data_of_an_own_grid_may_be_elsewhere(folder, grid_file, tmp_path, monkeypatch):
    """A grid that names a plain folder takes another one by --data."""
    found = []
    monkeypatch.setattr("earmark.experiment.run_grid", lambda grid, *args, **options: found.append(grid.source))
    for name in ("recordings", "urban-sed"):
        grid_file.write_text(re.sub(r'data = ".*"', f'data = "{name}"', grid_file.read_text()))
        monkeypatch.setattr(
            sys, "argv", ["earmark", "reproduce", str(grid_file), "--out", str(tmp_path), "--data", str(folder)]
        )
        with pytest.raises(SystemExit):
            main()
    assert found == [str(folder), f"urban-sed:{folder}"]


def test_earlier_rounds_are_evaluated_too(grid_file, tmp_path):
    """Each round of self-training is a run, of which the grid reports what is asked for."""
    grid = load_grid(grid_file).selected(systems=["max"], changes={"rounds": 1, "epochs": 1})
    specs = {"first": EvaluationSpec(round=0), "last": EvaluationSpec(with_psds=True)}
    grid = replace(grid, evaluations=specs)
    out = tmp_path / "out"
    assert run_grid(grid, out, cache=tmp_path / "cache")
    rows = {row.evaluation: row for row in gather(grid, out)}
    for name, network in (("first", "round-0"), ("last", "")):
        events = load(out / "cells" / "max-cnn-seed0" / network).score_clips(
            data_of(grid.source, None).split("test").clips
        )
        p = {clip.filename: clip.p for clip in events[0]}
        saved = rows[name].saved().probabilities()
        assert all((saved[filename].p == values).all() for filename, values in p.items())
    assert np.isnan(rows["first"].scores["psds1"])
    assert rows["last"].scores["psds1"] == rows["last"].saved().psds["psds1"]
    write_grid_report(grid, list(rows.values()), out)
    summary = (out / "summary-last.md").read_text()
    assert (
        "| system | runs | dynamic F1 | dynamic macro F1 | static F1, maximum | static F1, pooled | event F1 | PSDS 1 |"
        in summary
    )
    assert not (out / "summary-first.md").exists()
    with (out / "results.csv").open() as file:
        by_name = {row["evaluation"]: row for row in csv.DictReader(file)}
    assert by_name["first"]["psds1"] == ""
    assert float(by_name["last"]["psds1"]) == pytest.approx(rows["last"].scores["psds1"], abs=1e-6)
