"""Every command and every example in the documents prints what is shown there.

The commands of a page run one after another in one folder, which begins with what those of docs/tutorials/operators.md
left, on a thirtieth of the clips and with short trainings. Counts of clips are compared after the same reduction;
scores, events and timings, which depend on the training and the machine, are not compared, but the text and the columns
around them. Whether the scores shown there agree with each other is tested apart. Figures are blank: tests of reports,
of `earmark evaluate` and of the demo draw them.
"""

import doctest
import io
import os
import re
import runpy
import shlex
import shutil
import socket
import sys
from collections import Counter
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import warm
from in_process import without_workers

from earmark import audio
from earmark.cli import main
from earmark.pooling import POOLS
from earmark.synthesis import plan_from

ROOT = Path(__file__).parents[1]
PAGES = {
    name: (ROOT / name).read_text()
    for name in ("README.md", *(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")))
}
FIRST = "docs/tutorials/operators.md"
DATA = ("docs/data.md", "docs/soundscapes.md", "docs/training.md")
BLOCK = re.compile(r"(?:^`([^`\n]+)`\n)?^```(\w+)\n(.*?)^```$", re.S | re.M)  # and the name of a file above it

OWN = dict(POOLS._entries)
SHORT = ["--set", "epochs=2", "--set", "steps=2", "--set", "batch_size=4"]
SHORTER = {"train": SHORT, "reproduce": SHORT, "tune": SHORT}
FEWER_CLIPS = {"300": "10", "240": "8", "180": "6", "60": "2"}  # in all, left out, to train on, to test with
NOT_RUN = {"--cluster": "needs machines; tests/test_cluster.py starts a cluster of two nodes"}


def commands(block):
    """Commands of a console block, with what is shown under each."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield shlex.split(command, comments=True), shown


def call(words, folder):
    """Exit status of a command that is run in a folder, in this process, and all that it prints."""
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said), without_workers():
        patch.chdir(folder)
        patch.setenv("EARMARK_CACHE", str(folder / "cache"))
        patch.setenv("COLUMNS", "100")
        patch.setattr(POOLS, "_entries", dict(OWN))  # what a script registers stays in it
        patch.setattr(sys, "argv", words if words[0] == "earmark" else words[1:])
        try:
            main() if words[0] == "earmark" else runpy.run_path(words[1], run_name="__main__")
        except SystemExit as ended:
            return ended.code or 0, said.getvalue()
    return 0, said.getvalue()


def torchrun(words, folder):
    """The same for a module that torchrun starts in several processes; tests/test_training.py uses torchrun itself."""
    options, module = words[1 : words.index("-m")], words[words.index("-m") :]
    assert options[:2] == ["--standalone", "--nproc-per-node"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    here = os.environ | {"OMP_NUM_THREADS": "1", "EARMARK_CACHE": str(folder / "cache")} | address
    here |= {"WORLD_SIZE": options[2], "LOCAL_WORLD_SIZE": options[2], "TORCHELASTIC_RUN_ID": "none"}
    with ExitStack() as stack:
        started = []
        for rank in range(int(options[2])):
            env = here | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            words = [sys.executable, *module]
            process = warm.Popen(words, stdout=warm.PIPE, stderr=warm.STDOUT, text=True, cwd=folder, env=env)
            started.append(stack.enter_context(process))
            stack.callback(process.kill)
        printed = [process.communicate(timeout=300)[0] for process in started]
    return next((process.returncode for process in started if process.returncode), 0), "".join(printed)


def check_command(words, shown, folder, *, start=call, mask=str):
    """Run a command in a folder; it prints what is shown, but for what is masked."""
    code, printed = start(words, folder)
    is_refused = shown.splitlines()[-1].startswith("earmark: ")
    assert code == (2 if is_refused else 0), printed
    printed = re.sub(r"^[a-z]+: .* (left|so far|in all)\n", "", printed, flags=re.M)  # progress, on a slow machine
    agree = doctest.OutputChecker().check_output(mask(shown), mask(printed), doctest.ELLIPSIS)
    assert agree, f"{shlex.join(words)}\n{printed}"


def check_python(block, names):
    """Run the examples of a block; names are kept for the next one."""
    examples = doctest.DocTestParser().get_doctest(block, names, "page", None, None)
    said = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=flags).run(examples, out=said.append, clear_globs=False)
    names.update(examples.globs)
    assert not said, "".join(said)


USELESS = r"^Warning: the model is useless: .*\n"  # where a short training has the score 0


CHOSEN = r"^Thresholds(:| tuned on validation:).*\n"  # after training, if there are enough validation clips


def masked(text):
    """Without seconds and scores, which depend on the machine."""
    text = re.sub(CHOSEN, "", text, flags=re.M)
    text = re.sub(USELESS, "", re.sub(r"\d+ s$", "N s", text, flags=re.M), flags=re.M)
    return re.sub(r"(?<=by f1: )\d+ of \d+; validation .*", lambda found: re.sub(r"[\d.]+", "N", found[0]), text)


SCORE = r"[-+]?\d*\.\d{3}"
VARYING = (  # what depends on the training or on the machine
    rf"(?<![\d.]){SCORE}(?![\d.])",
    r"(?<=Best epoch by f1: )\d+ of \d+",
    r"\d+(?= events\b)",
    r"\d+(?= s$)|[\d.,]+(?= hours of sound)|[\d.]+(?= s: )|[\d,]+(?= times real time)",
    r"(?<=difference from PyTorch: )\S+",
    r"[\d.]+(?= in the clip)|(?<=most at )[\d.]+",
    r"(?<=\s)-(?=\s|$)",  # an undefined score
)


def reduced(shown):
    """What is shown for all clips, with the counts of the clips that are used here."""
    return re.sub(r"(?<![\d.,])(300|240|180|60)(?![\d.,])", lambda found: FEWER_CLIPS[found[0]], shown)


def outline(text, with_notes=True):
    """Without scores, events, verdicts and timings; without notes where none are shown."""
    text = re.sub(CHOSEN, "", text, flags=re.M)
    text = re.sub(r"^ +[\d.]+ +[\d.]+  \w+ +[\d.]+\n", "", text, flags=re.M)
    text = re.sub(r"^[\d.]+\t[\d.]+\t\w+\t[\d.]+\n", "", text, flags=re.M)
    text = re.sub(r"^(Best by|No difference: the data).*", "SUMMARY", text, flags=re.M)
    text = re.sub(r"^.* (is better than|are not distinguishable).* p [^ ]+.*", "VERDICT", text, flags=re.M)
    text = re.sub(r"^\d+ clips?: attenuated.*\n", "", text, flags=re.M)
    # of the clips that are used here
    few = r"^Note: (the numbers are rough: |class(es)? .* in no validation clip: |.* nowhere in the reference, ).*\n"
    text = re.sub(USELESS, "", re.sub(r"^Note: .*\n" if not with_notes else few, "", text, flags=re.M), flags=re.M)
    text = re.sub("|".join(VARYING), "#", text, flags=re.M)
    return re.sub(r"[ \t]+(\n?)", lambda found: found[1] or " ", text)


def smaller(words, clips=FEWER_CLIPS):
    """The command, with less to do: fewer trials, fewer clips, fewer steps."""
    fewer = {"--clips": clips, "--trials": {"10": "2"}}
    words = [fewer.get(before, {word: word})[word] for before, word in zip(["", *words], words, strict=False)]
    return words + next((extra for name, extra in SHORTER.items() if name in words[1:3]), [])


def walk(page, folder):
    """Write the files of a page, run its commands and examples, in its order; at least two commands."""
    names, commands_run = {}, 0
    for name, kind, block in BLOCK.findall(PAGES[page]):
        if "." in name:
            (folder / name).write_text(block)
        elif kind == "python":
            check_python(block, names)
        elif kind == "console":
            for words, shown in commands(block):
                if words[0] in ("make", "pip") or NOT_RUN.keys() & set(words):
                    continue
                found = [w for word in words for w in (sorted(map(str, folder.glob(word))) if "*" in word else [word])]
                mask = partial(outline, with_notes="Note: " in shown)
                check_command(smaller(found), reduced(shown), folder, mask=mask)
                commands_run += 1
    assert commands_run > 1, page


@pytest.fixture(scope="module")
def after_first(tmp_path_factory):
    """The folder that the commands of the first page leave, once each prints what is shown."""
    folder = tmp_path_factory.mktemp("readme")
    walk(FIRST, folder)
    return folder


@pytest.fixture
def place(after_first, tmp_path, monkeypatch):
    """What the commands of the first page left, and a recording: the current folder."""
    folder = tmp_path / "place"
    shutil.copytree(after_first, folder)
    clip = next((folder / "recordings" / "audio" / "test").glob("*.flac"))
    audio.write(folder / "night.wav", audio.read(clip, rate=44100), 44100)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(POOLS, "_entries", dict(OWN))
    return folder


def test_the_readme_shows_what_was_recorded():
    recorded = (ROOT / "benchmarks" / "results" / "first-detector-2-cores.txt").read_text().splitlines()
    blocks = [block for _, kind, block in BLOCK.findall(PAGES["README.md"]) if kind == "console"]
    lines = [line for block in blocks for line in block.splitlines() if line != "..."]
    assert len(lines) > 15
    for line in lines:
        assert line in recorded, line


def test_the_python_of_the_readme_runs(place, capsys):
    (block,) = (block for _, kind, block in BLOCK.findall(PAGES["README.md"]) if kind == "python")
    short = 'out="run3", recipe="quick", settings={"epochs": 1, "steps": 1, "batch_size": 2}'
    for shown, there in (('out="run"', short), ('"test"', '"recordings"'), ("hour.wav", "night.wav")):
        assert shown in block
        block = block.replace(shown, there)
    exec(block, {})
    assert "average (macro)" in capsys.readouterr().out
    assert (place / "hour.csv").is_file()


def test_the_first_page_works_from_top_to_bottom(after_first):
    shown = [words for _, kind, block in BLOCK.findall(PAGES[FIRST]) if kind == "console" for words in commands(block)]
    assert len(shown) > 8
    for made in ("run/model.safetensors", "run/scores.json", "found/events.csv", "found/report.html", "report.html"):
        assert (after_first / made).is_file(), made


def test_the_first_page_counts_what_its_commands_make():
    """Planning the soundscapes takes no time: how many there are in each split, with how many events, and where."""
    plan = plan_from("durations", clips=300)
    splits = Counter(soundscape.split for soundscape in plan)
    events = sum(len(soundscape.events) for soundscape in plan)
    counts = "({train} train, {validate} validate, {test} test)".format(**splits)
    page = PAGES[FIRST]
    assert f"\n300 clips {counts} with {events} events in recordings, " in page
    told = "300 clips, 10 classes: {train} to train on, {validate} to validate with, {test} to test with\n"
    assert page.count(told.format(**splits)) == 2
    assert page.count(f"{splits['test']} of {splits['test']} recordings done") == 1
    shown = next(soundscape for soundscape in plan if soundscape.name == "soundscape_test_uniform0")
    spans = {
        event.label: f"{event.event_time:.1f} to {event.event_time + event.event_duration:.1f} s"
        for event in shown.events
    }
    assert f"a bark from {spans['dog_bark']} and a shot from {spans['gun_shot']}." in " ".join(page.split())


def test_the_scores_of_the_first_page_agree_with_each_other():
    """They come from one run: F1 follows from precision and recall, averages from classes; runs keep their scores."""
    page = PAGES[FIRST]
    rows = {
        name: np.array(row.split(), float)
        for name, row in re.findall(r"^([a-z_ ()]+?) +((?:\d\.\d{3} *){7})$", page, re.M)
    }
    macro, micro = rows.pop("average (macro)"), rows.pop("all together (micro)")
    assert len(rows) == 10
    np.testing.assert_allclose(np.mean(list(rows.values()), axis=0), macro, atol=2e-3)
    for f1, precision, recall in [row[i : i + 3] for row in (*rows.values(), micro) for i in (0, 3)]:
        assert 2 * precision * recall / (precision + recall) == pytest.approx(f1, abs=2e-3)
    compared = re.search(r"^rap +((?:\d?\.\d{3} *){10})$", page, re.M)[1].split()
    np.testing.assert_allclose(np.array(compared, float)[[0, 1, 2, 6, 7, 8, 9]], [*macro[:3], *micro[3:]])
    low, high = re.search(r"95% interval over clips: (0\.\d+) to (0\.\d+)\n", page).groups()
    assert f"rap: {micro[3]:.3f}, 95% interval {low} to {high}\n".replace(" 0.", " .") in page


def test_the_page_about_judging_works_from_top_to_bottom(place):
    (place / "URBAN-SED").symlink_to(place / "recordings")  # of the same layout, classes and kind of names
    walk("docs/evaluation.md", place)


def test_the_page_about_operators_works_from_top_to_bottom(place):
    walk("docs/operators.md", place)
    sys.modules.pop("squared")


def test_the_page_about_engineering_works_from_top_to_bottom(place):
    walk("docs/engineering.md", place)


def test_commands_are_of_known_kinds():
    for page, text in PAGES.items():
        for _, kind, block in BLOCK.findall(text):
            for words, shown in commands(block) if kind == "console" else ():
                assert words[0] in ("earmark", "make", "pip", "python", "torchrun"), (page, words)
                assert shown or words[0] in ("make", "pip") or NOT_RUN.keys() & set(words), (page, words)
                if words[0] == "make":
                    assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M)


def test_benchmarks_that_are_named_exist():
    named = {found for text in PAGES.values() for found in re.findall(r"python (benchmarks/\w+\.py)", text)}
    assert len(named) > 3
    for name in named:
        assert (ROOT / name).is_file(), name


@pytest.mark.filterwarnings("always")  # printed, as users see them, rather than raised
def test_the_pages_about_data_and_training_work_from_top_to_bottom(tmp_path, monkeypatch):
    """Their files are written, their examples and commands run, in the order of the pages and in one folder."""
    monkeypatch.chdir(tmp_path)
    names = {}
    kinds = []
    for name, kind, block in (found for page in DATA for found in BLOCK.findall(PAGES[page])):
        kinds.append(kind)
        if kind == "console":
            for words, shown in commands(block):
                start = torchrun if words[0] == "torchrun" else call
                check_command(words, shown, tmp_path, start=start, mask=masked)
        elif kind == "python":
            check_python(block, names)
        elif "." in name:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(block)
    assert kinds.count("console") > 5
    assert kinds.count("python") > 5


def test_the_pages_about_data_show_the_layouts_that_are_read():
    from earmark.datasets import DATASETS

    shown = [block for page in DATA for _, kind, block in BLOCK.findall(PAGES[page]) if kind == "text"]
    for entry in DATASETS:
        assert entry.name == "folder" or entry.cls.layout in shown, entry.name


def test_urban_sed_is_made_again_from_its_specification(tmp_path, shared):
    words = "earmark synth {0}/events.csv.gz URBAN-SED --soundbank {0}/soundbank --clips 5 --workers 1"
    shown = (
        "5 clips (3 train, 1 validate, 1 test) with 20 events in URBAN-SED, 1 s\n"
        "15 events: source not in the sound bank, replaced by another of the same class and split\n"
        "Labels: URBAN-SED/labels.tsv\n"
    )
    check_command(words.format(shared / "urbansed").split(), shown, tmp_path, mask=masked)
    train = "earmark train urban-sed:URBAN-SED --out run --recipe quick --set epochs=1 --set steps=1 --set batch_size=2"
    check_command(train.split(), "...Model: run/model.safetensors\n...", tmp_path)


def test_measured_tables_are_the_recorded_outputs():
    recorded = set()
    for file in (ROOT / "benchmarks" / "results").glob("*.txt"):
        recorded |= {line.rstrip() for line in file.read_text().splitlines()}
    blocks = [block for page in PAGES.values() for _, kind, block in BLOCK.findall(page) if kind == "text"]
    measured = [
        block for block in blocks if any(word in block for word in ("Musk1", "formula", "sed_eval", "x real time"))
    ]
    assert len(measured) == 4
    for line in "".join(measured).splitlines():
        assert line.rstrip() in recorded, line


@pytest.mark.skipif(not (find_spec("keras") and find_spec("autopool")), reason="needs the extras keras and oracles")
def test_the_padding_table_is_what_the_benchmark_prints():
    quietly = "import runpy, warnings; warnings.simplefilter('ignore'); runpy.run_path({!r}, run_name='__main__')"
    code = quietly.format("benchmarks/padding.py")
    done = warm.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    table = re.search(r"```text\n(layer  .*?)```", PAGES["docs/operators.md"], re.S).group(1)
    for line in table.splitlines()[1:]:
        assert any(row.startswith(line.rstrip()) for row in printed), line
