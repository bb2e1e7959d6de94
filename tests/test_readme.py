"""Every command and every example in the README, and in docs/data.md, does what it says there."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONSOLE = re.findall(r"```console\n(.*?)```", README, re.S)
COMMANDS = [line for block in CONSOLE for line in block.splitlines() if line.startswith("$ ")]


DATA = (ROOT / "docs" / "data.md").read_text()
BLOCK = re.compile(r"(?:^`([^`\n]+)`\n)?^```(\w+)\n(.*?)^```$", re.S | re.M)  # and the name of a file above it


def run(*args, timeout=300):
    done = subprocess.run(
        args, capture_output=True, text=True, cwd=ROOT, timeout=timeout, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def commands(block):
    """Commands of a console block, with what is shown under each."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield shlex.split(command, comments=True), shown


def check_command(words, shown, folder):
    """Run a command in a folder; it prints what is shown, but for seconds and scores, which depend on the machine."""
    programs = {"earmark": "earmark.cli", "torchrun": "torch.distributed.run"}
    done = subprocess.run(
        [sys.executable, "-m", programs[words[0]], *words[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        timeout=300,
        env=os.environ | {"OMP_NUM_THREADS": "1", "EARMARK_CACHE": str(folder / "cache")},
    )
    is_refused = shown.splitlines()[-1].startswith("earmark: ")
    assert done.returncode == (2 if is_refused else 0), done.stdout
    assert doctest.OutputChecker().check_output(masked(shown), masked(done.stdout), doctest.ELLIPSIS), done.stdout


def masked(text):
    text = re.sub(r"\d+ s$", "N s", text, flags=re.M)
    return re.sub(r"epochs?: \d+; .*", lambda found: re.sub(r"[\d.]+", "N", found[0]), text)


def check_python(block, names):
    """Run the examples of a block; names are kept for the next one."""
    examples = doctest.DocTestParser().get_doctest(block, names, "docs/data.md", None, None)
    said = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(examples, out=said.append, clear_globs=False)
    names.update(examples.globs)
    assert not said, "".join(said)


def test_python_examples():
    run(
        sys.executable,
        "-m",
        "doctest",
        "-o",
        "ELLIPSIS",
        "-o",
        "NORMALIZE_WHITESPACE",
        "-o",
        "IGNORE_EXCEPTION_DETAIL",
        "README.md",
    )


def test_the_commands_are_of_known_kinds():
    assert COMMANDS
    for command in COMMANDS:
        assert re.match(r"\$ (make (demo|test)|pip install \.|earmark |python benchmarks/)", command), command


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("$ make")])
def test_make_targets_exist(command):
    target = command.split()[2]
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_earmark_commands_print_what_is_shown(tmp_path):
    """One after another, in one folder."""
    found = [pair for block in CONSOLE if block.startswith("$ earmark") for pair in commands(block)]
    assert len(found) > 3
    for words, shown in found:
        check_command(words, shown, tmp_path)


def test_the_page_about_data_works_from_top_to_bottom(tmp_path, monkeypatch):
    """Its files are written, its examples and commands run, in the order of the page and in one folder."""
    monkeypatch.chdir(tmp_path)
    names = {}
    kinds = []
    for name, kind, block in BLOCK.findall(DATA):
        kinds.append(kind)
        if kind == "console":
            for words, shown in commands(block):
                check_command(words, shown, tmp_path)
        elif kind == "python":
            check_python(block, names)
        elif "." in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block)
    assert kinds.count("console") > 5
    assert kinds.count("python") > 5


def test_the_page_about_data_shows_the_layouts_that_are_read():
    from earmark.datasets import DATASETS

    shown = [block for _, kind, block in BLOCK.findall(DATA) if kind == "text"]
    for entry in DATASETS:
        assert entry.name == "folder" or entry.cls.layout in shown, entry.name


def test_urban_sed_is_made_again_from_its_specification(tmp_path, shared):
    words = "earmark synth {0}/events.csv.gz URBAN-SED --soundbank {0}/soundbank --clips 5 --workers 1"
    shown = (
        "5 clips (3 train, 1 validate, 1 test) with 20 events in URBAN-SED, 1 s\n"
        "15 events: source not in the sound bank, another of the same class and split stands in\n"
        "Labels: URBAN-SED/labels.tsv\n"
    )
    check_command(words.format(shared / "urbansed").split(), shown, tmp_path)
    train = "earmark train urban-sed:URBAN-SED --out run --recipe quick --set epochs=1 --set steps=1 --set batch_size=2"
    check_command(train.split(), "...Model: run/model.safetensors\n...", tmp_path)


def test_the_demo_prints_the_table_shown(tmp_path):
    printed = run(sys.executable, "-m", "earmark.cli", "demo", "--out", str(tmp_path))
    table = re.search(r"```text\n(F1 on the frames.*?)```", README, re.S).group(1)
    rows = [line.rstrip() for line in printed.splitlines()]
    for line in table.splitlines():
        name, *shown = line.split()
        if name in ("mean", "max", "auto", "cap", "rap"):
            mine = next(row.split()[1:] for row in rows if row.split()[:1] == [name])
            assert [float(x) for x in mine[:7]] == pytest.approx([float(x) for x in shown], abs=0.05), name
        else:
            assert line.rstrip() in rows


def test_measured_tables_are_the_recorded_outputs():
    recorded = set()
    for file in (ROOT / "benchmarks" / "results").glob("*.txt"):
        recorded |= {line.rstrip() for line in file.read_text().splitlines()}
    blocks = [b for b in re.findall(r"```text\n(.*?)```", README, re.S) if "Musk1" in b or "formula" in b]
    assert len(blocks) == 2
    for line in "".join(blocks).splitlines():
        assert line.rstrip() in recorded, line


@pytest.mark.skipif(not (find_spec("keras") and find_spec("autopool")), reason="needs the extras keras and oracles")
def test_the_padding_table_is_what_the_benchmark_prints():
    printed = run(sys.executable, "-W", "ignore", "benchmarks/padding.py").splitlines()
    table = re.search(r"```text\n(layer  .*?)```", README, re.S).group(1)
    for line in table.splitlines()[1:]:
        assert any(row.startswith(line.rstrip()) for row in printed), line
