"""The tutorials run from top to bottom, the notebook runs, and the API reference lists the public names.

Tutorials continue each other in one folder, as a reader would, with fewer clips and short trainings. Scores, events and
timings are not compared, but everything around them. `make docs` builds the site and checks the links between pages.
"""

import contextlib
import importlib
import io
import json
import re
import runpy
import sys

import pytest
from in_process import without_workers
from test_readme import BLOCK, PAGES, ROOT, check_command, commands, outline, smaller

TUTORIALS = ("first-detector", "few-labels", "review-and-retrain", "number-for-a-paper")
FEWER = {"200": "15", "120": "9", "40": "3", "160": "12", "60": "15", "36": "9", "12": "3"}
OUTPUT = r"^\d+ clips?: beyond full scale.*\n|^\d+ right, \d+ wrong.*|^\d\.\d and above.*\n"
API = ROOT / "docs" / "reference" / "api"
MODULES = re.findall(r"automodule:: (\S+)", "".join(page.read_text() for page in sorted(API.glob("*.md"))))


def plain(text):
    """Without what depends on the number of clips, the training or the machine."""
    text = re.sub(OUTPUT, "", text, flags=re.M)
    text = re.sub(r"(?<=Last epoch: )\d+ of \d+|(?<=with )\d+(?= events)|\d+(?= are right)|\d+ to \d+(?=\))", "#", text)
    return re.sub(r"\d+\.\d{3}", "#", outline(text, with_notes=False))


def start(words, folder):
    """Run a command of a tutorial, in this process."""
    from test_readme import call

    if words[:2] == ["python", "tools/judge.py"]:
        words = ["python", str(ROOT / words[1]), *words[2:]]
    if "run-encoder" in words and words[1] == "train":
        words = [*words, "--encoder", "tiny"]
    return call(words, folder)


def run_python(block, folder):
    """What a block prints."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(block, {})
    return printed.getvalue()


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The folder in which all tutorials ran, one after another."""
    folder = tmp_path_factory.mktemp("tutorials")
    with pytest.MonkeyPatch.context() as patch, without_workers():
        patch.setenv("EARMARK_HOME", str(folder / "home"))
        for name in TUTORIALS:
            blocks = [(kind, block) for _, kind, block in BLOCK.findall(PAGES[f"docs/tutorials/{name}.md"])]
            for k, (kind, block) in enumerate(blocks):
                if kind == "python":
                    shown = blocks[k + 1][1]
                    assert plain(run_python(block, folder)) == plain(shown)
                for words, shown in commands(block) if kind == "console" else ():
                    fewer = re.sub(r"(?<![\d.,])\d+(?![\d.,])", lambda n: FEWER.get(n[0], n[0]), shown)
                    check_command(smaller(words), fewer, folder, start=start, mask=plain)
    return folder


def test_the_tutorials_work_from_top_to_bottom(walked):
    for made in ("run/scores.json", "found/report.html", "found/verdicts.csv", "run2/scores.json", "run-encoder/scores.json"):
        assert (walked / made).is_file(), made


@pytest.mark.parametrize("path", sorted(ROOT.glob("docs/notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run_and_are_stored_without_output(path, tmp_path, capsys):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join("".join(cell["source"]) for cell in cells))
    runpy.run_path(str(script))
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", [name for name in MODULES if name != "earmark.keras"])
def test_modules_of_the_reference_declare_their_names(name):
    module = importlib.import_module(name)
    assert module.__all__ == sorted(module.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    for each in module.__all__:
        assert hasattr(module, each), each


def test_public_names_are_few_and_deliberate():
    """A name is public if a page of the reference lists it; a new one needs a docstring and a reason."""
    assert len(MODULES) == len(set(MODULES))
    names = {f"{name}.{each}" for name in MODULES if name != "earmark.keras" for each in sys.modules[name].__all__}
    print(len(names)); assert len(names) <= 200


def test_the_root_has_the_functions_of_the_reference():
    import earmark
    from earmark import api

    assert set(earmark.__all__) - {"__version__"} == set(api.__all__) - {"Compute"}
