"""The report of runs: its content, that it is self-contained, and that names are escaped."""

import base64
import html
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest
import soundfile
from drawing import drawn
from report_runs import NASTY, write_data, write_run
from test_evaluation_result import evaluated
from typer.testing import CliRunner

from earmark import plots
from earmark.annotations import LabelTable
from earmark.cli import app
from earmark.errors import ArgumentError, DataError
from earmark.evaluation import EvaluationOptions, evaluate_events
from earmark.evaluation.comparison import compare_entries
from earmark.evaluation.systems import System, group_runs
from earmark.experiment import Grid, gather
from earmark.pooling import sufficient_share_to_alpha
from earmark.reporting.grid import write_grid_report
from earmark.reporting.pages import fill_text
from earmark.reporting.results import commands, read_run
from earmark.reporting.runs import worst_mistakes, write_report
from earmark.text import percent


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("report") / "data")


@pytest.fixture(scope="module")
def runs(data):
    alphas = ([1.8, 0.5, -0.4], [2.0, 0.3, -0.2], [1.9, 0.4, -0.3])
    made = [*(("cap", seed, 0.02, alpha) for seed, alpha in enumerate(alphas)), ("max", 0, 0.4, None)]
    return [
        write_run(data.parent / "runs" / f"{pool}-{seed}", data, pool, seed, noise, alpha=alpha)
        for pool, seed, noise, alpha in made
    ]


@pytest.fixture(scope="module")
def written(runs, data):
    with drawn():
        return write_report(runs, data.parent / "out" / "page.html")


@pytest.fixture(scope="module")
def page(written):
    return written[0].read_text(encoding="utf-8")


def test_the_page_and_its_tables_are_written(written):
    assert [path.name for path in written] == ["page.html", "page.md", "page.tex"]
    assert sorted(path.name for path in written[0].parent.glob("[!.]*")) == ["page.html", "page.md", "page.tex"]
    assert r"| dog\_bark |" in written[1].read_text(encoding="utf-8")
    assert written[2].read_text(encoding="utf-8").count(r"\begin{tabular}") == 3


def test_the_page_says_what_was_trained_on_what(page):
    assert "This page compares 2 models (4 training runs), trained on 30 clips of “data” with labels that say" in page
    assert "which of 3 classes occur in a clip, but not when, and evaluated on 6 clips of split test." in page
    assert "cap is significantly better than the other model." in page
    meaning = "Static scores say whether a class was detected in the right recordings, dynamic scores whether it was"
    assert page.count(meaning) == 1
    assert page.index(meaning) < page.index("<table")
    assert "cap (seeds 0, 1, 2); max (seed 0)" in page


def test_the_page_needs_nothing_but_itself(page):
    addresses = re.findall(r"""(?:src|href|action|data)\s*=\s*["']?([^"'\s>]+)""", page)
    assert addresses
    assert {a.partition(":")[0] if a.startswith("data:") else a[:1] for a in addresses} == {"data", "#"}
    assert not re.search(r"https?://|@import|url\((?!#)", page)


def test_names_can_do_no_harm(page):
    assert NASTY not in page
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "tom &amp; jerry &#39;n&#39;" in page
    assert "🐦" in page


def test_figures_do_not_share_names(page):
    names = re.findall(r' id="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(names)


def test_alpha_is_read_as_a_duration_beside_the_measured_one(page):
    text = " ".join(page.split())
    assert "cap learned alpha 1.9 for dog_bark, which requires activity for about 13% of the clip; in the" in text
    assert "in the clips that contain it, it is active for 25% of the time." in text


@pytest.mark.parametrize("kept", ["probabilities.npz", "config.toml"])
def test_alpha_never_asks_for_less_than_a_frame(kept, data, tmp_path):
    """One of 20 frames of 4 s, by the clips that were judged; by the recipe's patch, one of 27 of 10 s."""
    run = write_run(tmp_path / "run", data, "auto", 0, 0.02, alpha=[9.0, 2.0, 0.0])
    for name in {"probabilities.npz", "config.toml"} - {kept}:
        (run / name).unlink()
    page, tables, _ = (path.read_text() for path in write_report([run], tmp_path / "page.html"))
    frame = {"probabilities.npz": "0.2 s", "config.toml": "0.4 s"}[kept]
    assert f"alpha 9.0 for dog_bark, which requires a single output frame of {frame}" in " ".join(page.split())
    assert f"| 9.00 | {frame} |" in tables
    assert "| 2.00 | 12% |" in tables
    assert "below 0.1%" not in page


def test_alpha_of_adaptive_linear_soft_max_is_read_by_its_own_rule(data, tmp_path):
    runs = [
        write_run(tmp_path / pool, data, pool, 0, noise, alpha=[3.0, 2.0, 0.0])
        for pool, noise in (("linear-rap", 0.02), ("auto", 0.3))
    ]
    page, tables, _ = (path.read_text() for path in write_report(runs, tmp_path / "page.html"))
    text = " ".join(page.split())
    assert "linear-rap learned alpha 3.0 for dog_bark, for which a single output frame of 0.2 s suffices" in text
    assert "alpha 0 is linear soft-max or mean pooling." in text
    assert "| 2.00 | 0.2 s | 2.00 | 12% |" in tables  # 4.9 % of 4 s are less than a frame
    assert "| 0.00 | 11% | 0.00 | 50% |" in tables
    page, tables, _ = (path.read_text() for path in write_report(runs[:1], tmp_path / "alone.html"))
    assert "alpha 0 is linear soft-max." in " ".join(page.split())
    assert "the share that is enough whatever the rest is" in tables
    assert "1 / (1 + e" not in page


def test_an_alpha_of_another_meaning_is_not_read_as_a_duration(data, tmp_path):
    run = write_run(tmp_path / "run", data, "auto", 0, 0.02, alpha=[3.0, 2.0, 0.0])
    path = run / "config.toml"
    path.write_text(path.read_text().replace('name = "auto"', 'name = "squared"'))
    page, tables, _ = (path.read_text() for path in write_report([run], tmp_path / "page.html"))
    assert "read as a duration" not in page.replace("Alpha read as a duration", "")
    assert "| 3.00 | \N{EN DASH} |" in tables


@pytest.mark.parametrize(
    ("supervision", "classes", "labels"),
    [
        ("strong", 3, "labels that say when each of 3 classes occurs, and"),
        ("mixed", 1, "labels that say when the class occurs, and"),
        ("propagated", 1, "labels that say whether the class occurs in a clip, but not when, and"),
        ("weak", 1, "labels that say whether the class occurs in a clip, but not when, and"),
    ],
)
def test_the_page_describes_the_training_labels(supervision, classes, labels, runs):
    (entry, *_) = group_runs(runs[:1])
    run = read_run(entry.evaluations[0], "cap")
    scores = {**run.saved.scores, "classes": run.saved.scores["classes"][:classes]}
    run = replace(run, saved=replace(run.saved, scores=scores), config=f'[training]\nsupervision = "{supervision}"')
    assert labels in fill_text("lead.txt.j2", comparison=compare_entries([entry]), runs=[run])


def test_the_bound_of_cap_is_what_the_operator_allows(tmp_path, rng, monkeypatch):
    """With a recipe that leaves `reduction` at its default, 16: of 10 s at 22,050 Hz there are 13 output frames."""
    recipe = (resources.files("earmark") / "recipes" / "quick.toml").read_text(encoding="utf-8")
    (tmp_path / "recipe.toml").write_text(re.sub(r"(?m)^reduction = .*\n", "", recipe))
    systems = {
        "half": {"pool": "cap"},
        "most": {"pool": "cap", "phi": "0.9"},
        "long": {"pool": "cap", "min_duration": "2.0", "frame_rate": "1.3"},
        "each": {"pool": "cap", "min_duration": "[1.0, 2.0]", "frame_rate": "1.3"},
        "linear": {"pool": "linear-cap", "min_active": "0.02"},
        "free": {"pool": "auto"},
    }
    grid = Grid("bounds", {"": "folder:nowhere"}, systems, recipe=str(tmp_path / "recipe.toml"))
    for cell in grid.cells:
        folder = tmp_path / "cells" / cell.name
        known = {"data": "folder:nowhere", "split": "test", "alpha": [1.0, 2.0]}
        evaluated(np.random.default_rng(0), **known).save(folder / "clean")
        (folder / "config.toml").write_text(cell.settings.to_toml())
        (folder / "log.jsonl").write_text('{"epoch": 1, "best": true}\n')
    drawn = {}
    draw = plots.learned_alpha

    def watched(alpha, bounds=None, **options):
        drawn.update(bounds or {})
        return draw(alpha, bounds, **options)

    monkeypatch.setattr("earmark.plots.learned_alpha", watched)
    write_grid_report(grid, gather(grid, tmp_path), tmp_path)
    due = {"half": np.log(12), "most": np.log(9 * 12), "long": np.log(13 / 2.6 - 1)}
    due["linear"] = float(sufficient_share_to_alpha(0.02))
    assert drawn == pytest.approx(due, rel=1e-6)


def test_mistakes_can_be_looked_at_and_heard(page):
    sounds = re.findall(r'src="data:audio/mpeg;base64,([^"]+)"', page)
    assert len(sounds) == page.count('class="mistake"') == page.count('src="data:image/png;base64,')
    assert 1 <= len(sounds) <= 6
    for sound in sounds:
        samples, rate = soundfile.read(io.BytesIO(base64.b64decode(sound)))
        assert 1.9 < len(samples) / rate < 4.1  # a second before and after, within the clip
        assert np.abs(samples).max() > 0.05


def test_the_page_says_how_to_repeat_it(page, runs, data):
    commands = re.findall(r"^(?:<pre[^>]*>)?(earmark .*?)(?:</pre>)?$", page, re.M)
    assert [line.split()[1] for line in commands] == ["train"] * 4 + ["evaluate"] * 4 + ["compare", "report"]
    assert f"earmark evaluate {runs[0]} {data} --split test" in commands
    assert page.count("<summary>Configuration of") == 4
    assert "seed = 1" in page


def test_without_the_data_the_page_says_so_in_one_line(runs, tmp_path):
    """And entries may come with names of one's own."""
    (cap, *_) = group_runs(runs)
    comparison = compare_entries([System("my <own>", cap.evaluations), *group_runs(runs[-1:])])
    page = write_report(comparison, tmp_path / "page.html", data=str(tmp_path / "gone"))[0].read_text(encoding="utf-8")
    assert re.search(r"The clips are not available: .*gone.*Give their location with --data\.", page)
    assert "<audio" not in page
    assert "active, on average" not in page
    assert "my &lt;own&gt; is significantly better" in page


def test_bad_requests_are_refused(runs, tmp_path):
    with pytest.raises(ArgumentError, match=r"page.pdf: expected the name of an HTML file, ending in .html"):
        write_report(runs, tmp_path / "page.pdf")
    with pytest.raises(DataError, match="no such folder"):
        write_report([tmp_path / "nothing"], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_several_seeds_of_one_model_are_not_called_a_comparison(runs, tmp_path):
    page = write_report(runs[:3], tmp_path / "page.html")[0].read_text(encoding="utf-8")
    assert "This page describes a model (3 training runs), trained on" in page
    assert re.search(r"<summary>Seeds</summary>\s*<ul>\s*<li>cap: 3 seeds, F1 of segments", page)
    for text in ("No difference", "differ only", "Statistical tests", "Largest errors of"):
        assert text not in page


def test_the_command_writes_the_page_and_says_where(runs, tmp_path):
    """One run is compared with nothing, and has durations without alpha."""
    out = tmp_path / "new" / "page.html"
    done = CliRunner().invoke(app, ["report", str(runs[-1]), "--out", str(out), "--title", "Only <one>", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["files"] == [str(out.with_suffix(suffix)) for suffix in (".html", ".md", ".tex")]
    page = out.read_text(encoding="utf-8")
    assert page.rstrip().endswith("</html>")
    assert "<h1>Only &lt;one&gt;</h1>" in page
    assert '<p class="lead">This page describes a model, trained on' in page
    assert re.search(r"In segments of 1 s, the model reaches F1 \.\d{3}", page)
    assert "comparison" not in page
    assert "significantly" not in page
    assert 'id="durations"' in page
    assert "Learned alpha" not in page


def test_the_worst_mistakes_are_the_surest_and_one_of_a_class():
    reference = LabelTable(
        [("a", 0.0, 1.0, "dog"), ("a", 5.0, 6.0, "dog"), ("a", None, None, "owl"), ("b", 2.0, 4.0, "cat")],
        filenames=["c"],
    )
    estimate = LabelTable(
        [
            ("a", 3.0, 4.0, "dog"),
            ("a", 0.5, 1.5, "dog"),
            ("a", 1.0, 2.0, "owl"),
            ("c", 1.0, 2.0, "dog"),
            ("c", 1.0, 2.0, "cat"),
        ],
        filenames=["b"],
        classes=reference.classes,
    )
    p = {name: np.full((8, 3), 0.1) for name in "abc"}
    column = reference.classes.index
    p["a"][3, column("dog")] = 0.7
    p["c"][1, column("dog")] = 0.8
    p["c"][1, column("cat")] = 0.6
    p["b"][2:4, column("cat")] = 0.3
    found = [(m.filename, m.label, m.onset, m.p, m.is_miss) for m in worst_mistakes(reference, estimate, p, 1.0)]
    assert found == [
        ("c", "dog", 1.0, 0.8, False),
        ("c", "cat", 1.0, 0.6, False),
        ("a", "dog", 5.0, 0.1, True),  # that owl may be anywhere, so it is no false alarm
        ("b", "cat", 2.0, 0.3, True),
    ]


def test_what_the_reference_does_not_know_is_no_mistake():
    reference = LabelTable([("a", 0.0, 1.0, "dog")], classes=["dog", "cat"], complete=False)
    estimate = LabelTable([("a", 0.0, 1.0, "dog"), ("a", 2.0, 3.0, "cat")], classes=["dog", "cat"])
    assert worst_mistakes(reference, estimate, {"a": np.ones((4, 2))}, 1.0) == []


def test_of_a_class_that_is_known_in_part_only_what_is_known_is_a_mistake():
    rows = [("a", 0.0, 1.0, "dog"), ("a", 2.0, 3.0, "dog", False), ("a", None, None, "dog", None)]
    estimate = LabelTable([("a", 0.0, 1.0, "dog"), ("a", 2.0, 3.0, "dog"), ("a", 5.0, 6.0, "dog")])
    p = np.arange(8).reshape(8, 1) / 8  # higher where the class is unknown
    (mistake,) = worst_mistakes(LabelTable(rows), estimate, {"a": p}, 1.0)
    assert (mistake.onset, mistake.is_miss) == (2.0, False)


def test_evaluate_is_repeated_with_what_it_was_told(runs):
    (entry, *_) = group_runs(runs[:1])
    saved = entry.evaluations[0]
    decoder = {"threshold": 0.3, "low": None, "median": 0.5, "tuned_on": None}
    saved.scores.update(decoder=decoder, reference="truth file.jams", segment=0.1, psds={"psds1": 0.1, "psds2": 0.2})
    (_, line, _) = commands([read_run(saved, "cap")], runs[0] / "page.html")
    told = "--split test --reference 'truth file.jams' --segment 0.1 --threshold 0.3 --median 0.5 --psds"
    assert line.endswith(told)
    tuned = {"threshold": [0.3, 0.6], "median": [0.0, 0.5], "tuned_on": "recordings, validate"}
    saved.scores.update(decoder=tuned, reference="data", segment=1.0, psds=None, tune_on="validate", tune="decoder")
    (_, line, _) = commands([read_run(saved, "cap")], runs[0] / "page.html")
    assert line.endswith("--split test --tune-on validate --tune decoder")


def test_the_command_has_the_settings_that_differ_from_those_of_the_model(runs):
    (entry, *_) = group_runs(runs[:1])
    run = read_run(entry.evaluations[0], "cap")
    stored = {"threshold": [0.3, 0.4, 0.5], "min_gap": 0.5, "median": 0.2, "tuned_on": "validation"}
    run = replace(run, about={**run.about, "decoder": stored})
    for changes, options in (({}, ""), ({"threshold": 0.5, "min_gap": 0.0}, " --threshold 0.5 --min-gap 0.0")):
        run.saved.scores.update(decoder={**stored, **changes})
        assert commands([run], runs[0] / "page.html")[1].endswith("--split test" + options)


def test_shares_of_time_read_well():
    assert [percent(share) for share in (0.5, 0.0994, 0.0996, 0.0, 1.0)] == [
        "50%",
        "9.9%",
        "10%",
        "0%",
        "100%",
    ]


WATCH = """
<script>
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message || event.target.tagName)), true);
addEventListener("load", () => {
  const table = document.querySelector("table.sortable");
  const names = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim());
  const head = (k) => table.tHead.rows[1].cells[k];
  const result = {width: innerWidth, wide: document.documentElement.scrollWidth, begin: names(), errors, sorted: {}};
  for (const k of [0, 1, 1, 10]) {
    head(k).querySelector("button").click();
    result.sorted[k + " " + head(k).getAttribute("aria-sort")] = names();
  }
  result.marked = table.querySelectorAll("[aria-sort]").length;
  result.small = [...document.querySelectorAll("p, h1, h2, h3, dl, pre, .table, .drawing")]
    .filter((each) => each.getBoundingClientRect().right > innerWidth).map((each) => each.outerHTML.slice(0, 80));
  parent.postMessage(JSON.stringify(result), "*");
});
</script>
"""
FRAME = """<!DOCTYPE html><iframe src="watched.html" style="border: 0; width: 390px; height: 800px"></iframe>
<pre></pre><script>onmessage = (event) => { document.querySelector("pre").textContent = event.data; };</script>"""


def test_a_browser_sorts_tables_and_has_room_on_a_telephone(page, tmp_path):
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        pytest.skip("no browser is here: install chromium")
    (tmp_path / "watched.html").write_text(page.replace("<head>", "<head>" + WATCH, 1), encoding="utf-8")
    (tmp_path / "frame.html").write_text(FRAME, encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        "--virtual-time-budget=9000",
    ]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "frame.html").as_uri()]
    done = subprocess.run([browser, *options], capture_output=True, text=True, timeout=120, check=False)
    result = json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", done.stdout, re.S)[1]))
    assert ":CONSOLE" not in done.stderr
    assert result["errors"] == []
    assert result["wide"] == result["width"] == 390
    assert result["small"] == []
    assert result["begin"] == ["cap", "max"]
    assert result["sorted"] == {
        "0 ascending": ["cap", "max"],
        "1 descending": ["cap", "max"],
        "1 ascending": ["max", "cap"],
        "10 ascending": ["cap", "max"],  # errors: the fewest first
    }
    assert result["marked"] == 1


@pytest.mark.parametrize(("convention", "shown"), [("plain", ".000"), ("sed_eval", "\N{EN DASH}")])
def test_f1_by_class_has_the_convention_of_the_evaluation(convention, shown, tmp_path):
    """By sed_eval's, a class that is never detected has no F1."""
    rows = [(f"{i}.wav", 0.0, 1.0, label) for i in range(4) for label in ("dog", "owl")]
    detected = LabelTable(rows[::2], filenames=[row[0] for row in rows], classes=("dog", "owl"))
    evaluate_events(detected, LabelTable(rows), EvaluationOptions(convention=convention)).save(tmp_path / "run")
    _, tables, _ = write_report([tmp_path / "run"], tmp_path / "page.html")
    (row,) = [line for line in tables.read_text().splitlines() if line.startswith("| owl |")]
    assert row.split(" | ")[2].split()[0] == shown
