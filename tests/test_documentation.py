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

import pytest
from in_process import without_workers
from test_readme import BLOCK, PAGES, ROOT, call, check_command, check_python, commands, outline, smaller

from earmark import errors
from earmark.cli import app
from earmark.settings import descriptions

TUTORIALS = ("first-detector", "few-labels", "review-and-retrain", "number-for-a-paper")
FEWER = {"200": "10", "120": "6", "40": "2", "160": "8", "60": "5", "36": "3", "12": "1"}
OUTPUT = r"^\d+ clips?: attenuated.*\n|^\d+ right, \d+ wrong.*|^\d\.\d and above.*\n"
API = ROOT / "docs" / "reference" / "api"
MODULES = re.findall(r"automodule:: (\S+)", "".join(page.read_text() for page in sorted(API.glob("*.md"))))


def plain(text):
    """Without what depends on the number of clips, the training or the machine."""
    text = re.sub(OUTPUT, "", text, flags=re.M)
    text = re.sub(r"(?<=Last epoch: )\d+ of \d+|(?<=with )\d+(?= events)|\d+(?= are right)|\d+ to \d+(?=\))", "#", text)
    return re.sub(r"\d+\.\d{3}", "#", outline(text, with_notes=False))


def start(words, folder):
    """Run a command of a tutorial, in this process."""
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
                    check_command(smaller(words, FEWER), fewer, folder, start=start, mask=plain)
    return folder


def test_the_tutorials_work_from_top_to_bottom(walked):
    for made in (
        "run/scores.json",
        "found/report.html",
        "found/verdicts.csv",
        "run2/scores.json",
        "run-encoder/scores.json",
    ):
        assert (walked / made).is_file(), made


@pytest.mark.parametrize("page", ["explanation/pooling", "reference/errors"])
def test_examples_of_other_pages_run(page):
    blocks = [block for _, kind, block in BLOCK.findall(PAGES[f"docs/{page}.md"]) if kind == "python"]
    assert blocks
    for block in blocks:
        check_python(block, {})


def test_the_page_about_errors_lists_all_of_them():
    page = PAGES["docs/reference/errors.md"]
    for name in set(errors.__all__) - {"EarmarkError"}:
        builtin = getattr(errors, name).__bases__[1].__name__
        assert f"| `{name}` | `{builtin}` |" in page


def test_the_page_about_json_lists_every_command_that_has_it():
    listed = set(re.findall(r"^\| `(\w+)", PAGES["docs/reference/json.md"], re.M))
    offering = {
        command.name or command.callback.__name__
        for command in app.registered_commands
        if "as_json" in command.callback.__annotations__
    }
    assert listed == offering | {"encoders"}


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
    modules = [importlib.import_module(name) for name in MODULES if name != "earmark.keras"]
    names = {f"{module.__name__}.{each}" for module in modules for each in module.__all__}
    assert len(names) <= 255


def test_the_root_has_the_functions_of_the_reference():
    import earmark
    from earmark import api

    assert set(earmark.__all__) - {"__version__"} == set(api.__all__) - {"Compute"}


def test_schemas_are_up_to_date_and_describe_the_files(walked):
    jsonschema = pytest.importorskip("jsonschema")
    tool = runpy.run_path(str(ROOT / "tools" / "write_schemas.py"))
    made = tool["schemas"]()
    assert {path.stem for path in tool["FOLDER"].glob("*.json")} == made.keys()
    for name, schema in made.items():
        stored = (tool["FOLDER"] / f"{name}.json").read_text(encoding="utf-8")
        assert stored == tool["text"](schema), f"{name}: run python tools/write_schemas.py"
        assert f"schemas/{name}.json" in PAGES["docs/reference/files.md"]
    for file, name in (
        ("run/scores.json", "scores"),
        ("run/log.jsonl", "log-line"),
        ("found/verdicts.jsonl", "verdict-line"),
    ):
        jsonschema.Draft202012Validator.check_schema(made[name])
        validator, text = jsonschema.Draft202012Validator(made[name]), (walked / file).read_text()
        lines = text.splitlines() if file.endswith("l") else [text]
        assert lines, file
        for line in lines:
            validator.validate(json.loads(line))


def test_every_setting_is_listed_with_its_values_and_default():
    rows = re.findall(r"^\| `.*\|$", PAGES["docs/reference/settings.md"], re.M)
    due = [f"| `{row['name']}` | {row['summary']} | {row['values']} | `{row['default']}` |" for row in descriptions()]
    assert rows == due
