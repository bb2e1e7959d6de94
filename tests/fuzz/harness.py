"""Runs cases in this process and judges them: the worker of `runner`.

A case passes if its call returns or raises an EarmarkError that the command line prints as one line without control
characters; or, for one in 25, if its command ends with exit code 0, 1 or 2 and prints lines that begin with "earmark:"
on standard error, or none. Meanwhile no warning may be printed, nothing written outside of the folders that the case
names, and no other file changed.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import asdict, dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import IO, Any

from fuzz import kit
from fuzz.cases import Case, load_readers, make_case

MOST_SECONDS = 30  # of processor time
MOST_BYTES = 2 << 30
COMMAND_EVERY = 25  # cases whose number divides by this one run their command, if they have one
_ONE_LINE = re.compile(r"(earmark: [^\n]*\n)?")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.chmod", "os.symlink", "os.link")


@dataclass
class Outcome:
    """How a case ended: accepted, refused or failed."""

    name: str
    outcome: str
    reason: str = ""  # the message of a refusal, or what is wrong
    place: str = ""  # of an unexpected error, in earmark
    about: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0  # of memory, at most


def serve(root: Path, replies: IO[str]) -> None:
    """Run the cases that standard input names, a line each; for each, a line when it is made and one when it ends."""
    log = os.fdopen(os.dup(2), "w")  # standard error is captured during a case
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)  # the runner asks where a case is that takes too long
    load_readers()
    for module in ("earmark.api", "earmark.plots"):  # takes seconds, and may write caches
        import_module(module)
    kit.ROOT = root / "kit"
    watch = _Watch(root / "temporary")
    here = root / f"worker-{os.getpid()}"
    for line in sys.stdin:
        shutil.rmtree(here, ignore_errors=True)
        (here / "case").mkdir(parents=True)
        os.chdir(here / "case")
        case = make_case(line.strip())
        print(json.dumps({"name": line.strip(), "about": case.about}), file=replies, flush=True)
        print(json.dumps(asdict(run_case(line.strip(), case, watch))), file=replies, flush=True)
        os.chdir(root)


def run_case(name: str, case: Case, watch: _Watch) -> Outcome:
    """The outcome of a case whose files are in the current folder."""
    before = _snapshot(case)
    is_command = case.command is not None and int(name.partition(":")[2]) % COMMAND_EVERY == 0
    _reset_peak()
    started = _seconds()
    outcome = _run_command(name, case) if is_command else _run_call(name, case, watch)
    outcome.seconds = round(_seconds() - started, 3)
    outcome.megabytes = round((_peak_of_children() if is_command else _peak()) / 2**20)
    outcome.about = case.about
    changed = sorted(path for path, content in before.items() if _content(Path(path)) != content)
    new = sorted(path for path in _snapshot(case) if path not in before)
    problems = [f"changed or deleted {', '.join(changed[:3])}"] if changed else []
    problems += [f"wrote {', '.join(new[:3])}"] if new else []
    problems += [f"took {outcome.seconds:.0f} s"] if outcome.seconds > MOST_SECONDS else []
    problems += [f"took {outcome.megabytes:.0f} MB"] if outcome.megabytes > MOST_BYTES / 2**20 else []
    if problems:
        outcome.reason = "; ".join([*problems, outcome.reason]) if outcome.outcome == "failed" else "; ".join(problems)
        outcome.outcome = "failed"
    return outcome


def _run_call(name: str, case: Case, watch: _Watch) -> Outcome:
    from earmark.errors import EarmarkError

    outcome = Outcome(name, "accepted")
    with _captured() as printed, watch.watching() as writes, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            case.call()
        except EarmarkError as error:
            outcome.outcome, outcome.reason = "refused", str(error)
            if problem := _unprintable(_as_printed(error)):
                outcome.outcome, outcome.reason = "failed", f"{problem}: {str(error)[:300]!r}"
                outcome.place = _place_of(error)
        except Exception as error:
            text = " ".join(str(error).split())
            outcome.outcome, outcome.reason = "failed", f"{type(error).__name__}: {text[:300]}"
            outcome.place = _place_of(error)
    noise = [f"{w.category.__name__}: {w.message}" for w in warned if not _is_about_labels(w)]
    noise += [f"printed {text[:200]!r}" for text in printed if text]
    noise += [f"wrote {path}" for path in writes]
    if noise:
        earlier = [outcome.reason] if outcome.outcome == "failed" else []
        outcome.outcome, outcome.reason = "failed", "; ".join([*earlier, *noise[:3]])
    return outcome


def _run_command(name: str, case: Case) -> Outcome:
    assert case.command is not None
    stdin = open(case.stdin, "rb") if case.stdin else subprocess.DEVNULL  # noqa: SIM115
    result = subprocess.run(
        [sys.executable, "-m", "earmark.cli", *case.command],
        stdin=stdin,
        capture_output=True,
    )
    said = result.stderr.decode(errors="replace")
    lines = [line for line in said.splitlines(keepends=True) if not _is_progress(line)]
    outcome = Outcome(name, "accepted" if result.returncode == 0 else "refused", " ".join(said.split()))
    if result.returncode not in (0, 1, 2):
        outcome.outcome, outcome.reason = "failed", f"exit code {result.returncode}: {said[-300:]}"
    elif "Traceback" in said or "Warning" in said:
        outcome.outcome, outcome.reason = "failed", f"command: {' '.join(said.split())[-300:]}"
    elif any(not _ONE_LINE.fullmatch(line) or _unprintable(line.removesuffix("\n")) for line in lines):
        outcome.outcome, outcome.reason = "failed", f"command printed {said[:300]!r}"
    return outcome


def _is_progress(line: str) -> bool:
    """Whether a line of standard error is one of progress, or says what is listened to."""
    return re.match(r"[\w ()-]+: \d+/\d+ |earmark: listening to ", line) is not None


def _as_printed(error: Exception) -> str:
    """What the command line prints for an error."""
    from earmark.cli.app import print_error

    with redirect_stderr(StringIO()) as printed:
        print_error(str(error))
    return printed.getvalue().removeprefix("earmark: ").removesuffix("\n")


def _unprintable(message: str) -> str:
    if not message.strip():
        return "an empty message"
    if "\n" in message or "\r" in message:
        return "a message of several lines"
    return "" if message.isprintable() else "a message that cannot be printed"


def _is_about_labels(warning: warnings.WarningMessage) -> bool:
    """Whether the command line prints it in one line, as it does notes about labels and data sets."""
    return issubclass(warning.category, UserWarning) and Path(warning.filename).parent.name in ("formats", "datasets")


def _place_of(error: BaseException) -> str:
    """The innermost line of earmark that an error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f"{os.sep}earmark{os.sep}" in f.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


class _Watch:
    """Notices when Python code writes or deletes anything outside of the current folder, but for temporary files."""

    def __init__(self, temporary: Path) -> None:
        self._is_on = False
        self._temporary = str(temporary)
        self._writes: list[str] = []
        self._root = ""
        sys.addaudithook(self._hear)

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Yields the list of what is written."""
        self._writes, self._root, self._is_on = [], os.path.realpath("."), True
        try:
            yield self._writes
        finally:
            self._is_on = False

    def _hear(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._is_on:
            return
        if event == "open" and given[2] & _WRITING:
            self._check(given[:1])
        elif event in _CHANGING:
            self._check(given[:2] if event in ("os.rename", "os.link", "os.symlink") else given[:1])

    def _check(self, paths: Sequence[object]) -> None:
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                real = os.path.realpath(os.fsdecode(path))
                is_inside = any(f"{real}/".startswith(f"{root}/") for root in (self._root, self._temporary))
                if not is_inside and real != os.devnull:
                    self._writes.append(real)


@contextmanager
def _captured() -> Iterator[list[str]]:
    """Redirect standard output and error, of libraries in C too; the text is there when the block ends."""
    printed: list[str] = [""]
    saved = os.dup(1), os.dup(2)
    path = Path("../printed")
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield printed
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for old, number in zip(saved, (1, 2), strict=True):
                os.dup2(old, number)
                os.close(old)
    printed[0] = path.read_text(errors="replace")


def _snapshot(case: Case) -> dict[str, str]:
    """Digests of the files that must stay as they are; a new one among them must not appear."""
    files = {}
    for place, _, names in os.walk("."):
        for name in names:
            path = Path(place, name)
            is_free = any(path.is_relative_to(folder) for folder in case.writes)
            if not is_free or str(path) in case.keeps:
                files[str(path)] = _content(path)
    return files


def _content(path: Path) -> str:
    if path.is_symlink():
        return f"link to {os.readlink(path)}"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "absent"


def _seconds() -> float:
    """Processor time of this process and its children, which does not depend on what else the machine does."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) * 1024


def _peak_of_children() -> int:
    """The largest so far; a worker is replaced after one that is too large, which is so noticed once."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
