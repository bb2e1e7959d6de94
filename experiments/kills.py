"""Kill each command repeatedly, and compare its results with those of an undisturbed run.

    .venv/bin/python experiments/kills.py --out /tmp/kills

`train`, `train` with cross-validation and self-training (`rounds`), `detect`, `synth`, `evaluate` and a grid of
`reproduce` are each run once undisturbed, and then killed ten times at random moments, in turn with SIGKILL and
SIGTERM. The same command is started again after each kill. When it ends by itself before all kills were sent, its
folder is compared, and the rest are sent to a run in a new folder. SIGTERM must give exit code 143 (-15 only before the
command line is ready), and training prints how to resume. A second process of the same command is refused with exit
code 2 and one line that names the first.

Folders are compared byte by byte, except for what also differs between undisturbed runs:

    .lock, .evaluation.lock        not compared: empty
    .earmark.jsonl                 compared by its final hashes, not by the order of its lines
    model.safetensors, last.ckpt   compared with their header as a value: the order of its two entries varies
    log.jsonl                      compared without clips_per_second
    ledger.sqlite                  compared by its rows
    cache                          not compared: the order of clips depends on threads; runs trained on it are compared

About ten minutes on two idle cores; exit code 1 if anything differs.
"""

import argparse
import hashlib
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

LEFT_OUT = (".lock", ".lock.json", ".evaluation.lock", ".evaluation.lock.json", "cache")
GRID = """title = "Kills"
data = "{data}"
recipe = "quick"
seeds = 1
settings = {{ epochs = {epochs}, steps = 4, batch_size = 4 }}
[systems]
max = {{ pool = "max" }}
auto = {{ pool = "auto" }}
[evaluations.clean]
"""


@dataclass
class Command:
    """A command that is run in a separate folder, where it writes `out`."""

    name: str
    words: list[str]
    out: str
    must_print: str = ""  # when SIGTERM ends it


@dataclass
class Result:
    """The results of the kills of a command."""

    codes: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    rounds: int = 0
    kills: int = 0


def main() -> None:
    """Run all commands and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="a new folder for everything")
    parser.add_argument("--kills", type=int, default=10, help="of each command (10)")
    parser.add_argument("--clips", type=int, default=24, help="soundscapes (24)")
    parser.add_argument("--epochs", type=int, default=3, help="of each training run (3)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    parser.add_argument("--only", default="train,rounds,detect,synth,evaluate,grid", help="some of these commands")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True)
    rng = random.Random(options.seed)
    data = options.out / "data"
    finish(start(["synth", "durations", str(data), "--clips", str(options.clips)], options.out))
    rows, is_good = [], True
    for command in commands(options, data):
        if command.name == "model":  # for detect and evaluate
            finish(start(command.words, options.out))
            continue
        if command.name not in options.only.split(","):
            continue
        result = disturb(command, options.out / command.name, options.kills, rng)
        refusal = second_writer(command, options.out / command.name / "two")
        rows.append(row(command, result, refusal))
        is_good &= not result.problems and refusal == "refused"
        for problem in dict.fromkeys(result.problems):
            print(f"{command.name}: {problem}", flush=True)
    print("| command | kills | runs | exit codes (times) | same as undisturbed | second process |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))
    sys.exit(0 if is_good else 1)


def commands(options: argparse.Namespace, data: Path) -> list[Command]:
    """All commands; those that need a model come after the one that trains it."""
    grid = options.out / "grid.toml"
    grid.write_text(GRID.format(data=data, epochs=options.epochs))
    short = [f"--set=epochs={options.epochs}", "--set=steps=4", "--set=batch_size=4"]
    train = ["train", str(data), "--recipe", "quick", *short, "--resume", "--cache", "cache", "--out", "run"]
    model = str(options.out / "run")
    folds = [str(without_splits(data)) if word == str(data) else word for word in train]
    return [
        Command("model", train, "run"),
        Command("train", train, "run", must_print="--resume"),
        Command("rounds", [*folds, "--set=folds=2", "--set=rounds=1"], "run", must_print="--resume"),
        Command("detect", ["detect", model, str(data / "audio"), "--out", "job", "--keep-scores"], "job"),
        Command("synth", ["synth", "durations", "made", "--clips", str(options.clips)], "made"),
        Command("evaluate", ["evaluate", model, str(data), "--out", "evaluated"], "evaluated"),
        Command("grid", ["reproduce", str(grid), "--out", "grid", "--cache", "cache"], "grid"),
    ]


def without_splits(data: Path) -> Path:
    """A folder with the same clips and weak labels, which are too few to be split: training cross-validates."""
    folder = data.with_name("unsplit")
    folder.mkdir()
    for path in data.glob("audio/*/*.flac"):
        (folder / path.name).write_bytes(path.read_bytes())
    _, *lines = (data / "labels.tsv").read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    text = "".join(f"{Path(name).name}\t{label}\n" for name, _, _, label, *_ in rows)
    (folder / "labels.tsv").write_text("filename\tlabel\n" + text)
    return folder


def row(command: Command, result: Result, refusal: str) -> str:
    """A line of the table."""
    codes = ", ".join(f"{code} ({times})" for code, times in sorted(result.codes.items()))
    state = "no" if result.problems else "yes"
    return f"| {command.name} | {result.kills} | {result.rounds} | {codes} | {state} | {refusal} |"


def start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start a command in a folder, as a new process group; its output goes to the file `printed` there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "printed").open("w") as printed:
        return subprocess.Popen(
            [sys.executable, "-m", "earmark.cli", *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )


def finish(process: subprocess.Popen[str]) -> float:
    """Wait for a command that must succeed; the seconds it took."""
    started = time.monotonic()
    if process.wait() != 0:
        sys.exit(f"{process.args!r} ended with exit code {process.returncode}")
    return time.monotonic() - started


def disturb(command: Command, place: Path, kills: int, rng: random.Random) -> Result:
    """Run a command undisturbed and then with kills, in as many folders as that takes; compare them."""
    seconds = finish(start(command.words, place / "undisturbed"))
    print(f"{command.name}: {seconds:.0f} s undisturbed", flush=True)
    result = Result()
    while result.kills < kills:
        result.rounds += 1
        folder = place / f"killed-{result.rounds}"
        while kill_once(command, folder, seconds, rng, result) and result.kills < kills:
            pass
        process = start(command.words, folder)
        if process.wait() != 0:
            result.problems.append(f"cannot continue: exit code {process.returncode}: {output(folder)[-300:]}")
        result.codes[process.returncode] += 1
        result.problems += differences(place / "undisturbed" / command.out, folder / command.out)
        print(f"{command.name}: {result.kills} of {kills} kills in {result.rounds} runs", flush=True)
    return result


def kill_once(command: Command, folder: Path, seconds: float, rng: random.Random, result: Result) -> bool:
    """Start a command and kill it at a random moment; False if it ended by itself before."""
    process = start(command.words, folder)
    number = (signal.SIGKILL, signal.SIGTERM)[result.kills % 2]
    try:
        process.wait(rng.uniform(0.05, 0.7) * seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, number)
        code = process.wait()
        result.kills += 1
        result.codes[code] += 1
        result.problems += judge(command, number, code, output(folder))
        wait_for_group(process.pid, result)
        return True
    if process.returncode != 0:
        result.problems.append(f"ended by itself with exit code {process.returncode}: {output(folder)[-300:]}")
    return False


def judge(command: Command, number: int, code: int, text: str) -> list[str]:
    """Problems with the end of a killed command."""
    expected = (-9,) if number == signal.SIGKILL else (143, -15, 0)  # 0: it ended just before
    problems = [] if code in expected else [f"exit code {code} after {signal.Signals(number).name}: {text[-300:]}"]
    if code == 143 and command.must_print not in text:
        problems.append(f"does not say how to resume: {text[-300:]}")
    if "Traceback" in text:
        problems.append(f"prints a traceback when killed: {text[-500:]}")
    return problems


def wait_for_group(group: int, result: Result) -> None:
    """Wait until the worker processes of a killed command have ended."""
    for _ in range(300):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    result.problems.append("worker processes still run 30 s after their parent was killed")
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def output(folder: Path) -> str:
    """The output of the last command in a folder, without progress."""
    text = (folder / "printed").read_text(errors="replace")
    return "\n".join(line for line in text.splitlines() if not re.match(r"[\w ().-]+: \d+/\d+ ", line))


def second_writer(command: Command, folder: Path) -> str:
    """Start a command while another one writes the same folder: "refused", or what happened instead."""
    first = start(command.words, folder)
    try:
        while first.poll() is None and not any(p.stat().st_size for p in (folder / command.out).glob(".*lock.json")):
            time.sleep(0.01)
        if first.poll() is not None:
            return "not refused: the first takes no lock"
        first.send_signal(signal.SIGSTOP)  # so that it holds the lock until the second process requests it
        second = subprocess.run(first.args, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        is_named = f"process {first.pid} " in second.stderr and second.stderr.count("\n") == 1
        if second.returncode == 2 and is_named:
            return "refused"
        return f"exit code {second.returncode}: {second.stderr[-200:]!r}"
    finally:
        first.kill()
        first.wait()


def differences(undisturbed: Path, killed: Path) -> list[str]:
    """Files that are not the same in two folders."""
    names = sorted({*files(undisturbed), *files(killed)})
    return [f"differs: {name}" for name in names if content(undisturbed / name) != content(killed / name)]


def files(folder: Path) -> list[str]:
    """Relative paths of the files to compare."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in paths if not set(path.parts) & set(LEFT_OUT)]


def content(path: Path) -> object:
    """The content of a file, without what also differs between undisturbed runs."""
    if not path.exists():
        return "absent"
    return _CONTENTS.get(path.name, Path.read_bytes)(path)


def _manifest(path: Path) -> object:
    """Whether each file that the manifest lists has one of its hashes."""
    entries = {line["file"]: line["sha256"] for line in map(json.loads, path.read_text().splitlines())}
    unchanged = {}
    for name, hashes in entries.items():
        file = path.parent / name
        if hashes:
            unchanged[name] = file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() in hashes
    return unchanged


def _log(path: Path) -> object:
    return [{**json.loads(line), "clips_per_second": None} for line in path.read_text().splitlines()]


def _ledger(path: Path) -> object:
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(map(repr, database.execute(f"SELECT * FROM {name}"))) for name in names}


def _tensors(path: Path) -> object:
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


_CONTENTS: dict[str, Callable[[Path], object]] = {
    ".earmark.jsonl": _manifest,
    "model.safetensors": _tensors,
    "last.ckpt": _tensors,
    "log.jsonl": _log,
    "ledger.sqlite": _ledger,
}

if __name__ == "__main__":
    main()
