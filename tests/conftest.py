"""Shared fixtures and settings of the test session."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests, and the commands that they start, run in several processes
if gc.isenabled():  # not until all tests are collected: what is imported stays
    gc.disable()

import numpy as np
import pytest
import torch
from drawing import blank, drawn
from lightning_fabric import Fabric

from earmark.audio import write
from earmark.cli import main

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background; commands under test would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files that `make test-light` leaves out: pages of documentation, grids, servers, browsers, clusters, encoders in
# training, cross-validation, damaged sound, and processes that are killed. It leaves out tests
# with the mark `slow` too. `make test` runs them all.
SLOW = [
    "audio_damage",
    "cluster",
    "detection_job",
    "docs_detection",
    "documentation",
    "encoder_models",
    "experiment",
    "export",
    "findings",
    "fine_tuning",
    "folds",
    "full_disk",
    "fuzz",
    "keras",
    "live",
    "mil",
    "report",
    "report_job",
    "report_policy",
    "reproduce",
    "readme",
    "reviewing_browser",
    "reviewing_server",
    "reviewing_training",
    "structures",
    "synth_interrupt",
    "teaching",
    "training",
    "tuning",
]


LONGEST = (  # files whose tests take more than ten seconds of processor time in all, the longest first
    "test_cluster.py",  # waits for Ray's processes, while others use the time
    "test_experiment.py",
    "test_pooling.py",
    "test_readme.py",
    "test_training.py",
    "test_encoder_models.py",
    "test_fine_tuning.py",
    "test_keras.py",
    "test_cli.py",
    "test_export.py",
    "test_reproduce.py",
    "test_synth_interrupt.py",
    "test_audio.py",
    "test_documentation.py",
    "test_evaluation_segment.py",
    "test_detection_job.py",
    "test_mil.py",
    "test_fuzz.py",
    "test_synthesis.py",
    "test_findings.py",
    "test_tuning.py",
    "test_report.py",
    "test_cli_evaluate.py",
    "test_pooling_stream.py",
    "test_reviewing_browser.py",
    "test_formats.py",
    "test_features.py",
    "test_events.py",
    "test_evaluation_psds.py",
)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long file that begins last would keep one process busy while the others have nothing left to do."""
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(LONGEST)))
    for item in items:
        if item.path.stem.removeprefix("test_") in SLOW:
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """From here on the garbage collector passes over modules and tests, about a million objects."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20181015)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Parameters of modules are drawn from the global generator."""
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def blank_figures() -> Iterator[None]:
    with blank():
        yield


@pytest.fixture
def drawn_figures() -> Iterator[None]:
    with drawn():
        yield


@pytest.fixture
def earmark(monkeypatch, capsys):
    """Runs a command in this process: exit code, output, errors. A traceback is an exception."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["earmark", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return call


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20181015)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Real data that licences keep out of the repository: $EARMARK_SHARED, or `shared` beside the checkout."""
    folder = Path(os.environ.get("EARMARK_SHARED") or Path(__file__).parents[2] / "shared") / "data"
    if not folder.is_dir():
        pytest.skip("real data are not here: set EARMARK_SHARED to the folder that holds data/")
    return folder


@pytest.fixture(scope="session")
def fabric() -> Fabric:
    """One process on the CPU, also where there is a GPU: only there do two runs agree to the last bit."""
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    return fabric


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Features and encoders of the module's tests are cached in a folder of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EARMARK_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kinds of sound in 24 clips of two seconds, of which 12 are to train with; in a folder of the module's own."""
    root = tmp_path_factory.mktemp("data") / "recordings"
    root.mkdir()
    rng = np.random.default_rng(7)
    rows = ["filename\tonset\toffset\tlabel\tsplit"]
    for i in range(24):
        name, split = f"{i:02}.wav", "train" if i < 12 else "validate" if i < 18 else "test"
        sound = 0.001 * rng.normal(size=16000)
        rows.append(f"{name}\t\t\t\t{split}")
        for label, pitch in (("hum", 300), ("click", 2500)):
            if rng.random() < 0.5:
                onset = int(rng.integers(0, 10)) / 10
                t = np.arange(int(onset * 8000), int((onset + 0.6) * 8000))
                sound[t] += 0.3 * np.sin(2 * np.pi * pitch * t / 8000)
                rows.append(f"{name}\t{onset}\t{onset + 0.6:.1f}\t{label}\t{split}")
        write(root / name, sound.astype(np.float32), 8000)
    (root / "labels.tsv").write_text("\n".join(rows) + "\n")
    return root


PACKAGES = ("earmark", "sed_eval", "sed_scores_eval")


@pytest.fixture
def parity(request):
    """Asserts that packages give one number, and enters it in the table at the end of the run."""

    def record(case: str, score: str, **values: float) -> None:
        numbers = {package: float(value) for package, value in values.items()}
        spread = max(numbers.values()) - min(numbers.values())
        assert spread <= 1e-9, f"{case}, {score}: {numbers}"
        request.node.user_properties.append(("parity", [case, score, *map(numbers.get, PACKAGES), spread]))

    return record


def pytest_terminal_summary(terminalreporter):
    """The same numbers from everyone, for people to see; recorded by `parity`, in whichever process."""
    reports = terminalreporter.stats.get("passed", [])
    rows = [row for r in reports for name, row in getattr(r, "user_properties", ()) if name == "parity"]
    if not rows:
        return
    terminalreporter.section("parity: the same scores from every package")
    lines = [["", "score", *PACKAGES, "difference"]]
    for case, score, *numbers, spread in rows:
        lines.append([case, score, *("-" if n is None else f"{n:.12f}" for n in numbers), f"{spread:.0e}"])
    for cells in lines:
        widths = (27, 20, 16, 16, 16, 10)
        terminalreporter.write_line("".join(f"{c:<{w}}" for c, w in zip(cells, widths, strict=True)).rstrip())
