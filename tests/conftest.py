"""Shared fixtures: one seeded generator, and no threads fighting over two cores."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20181015)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Parameters of modules are drawn from the global generator."""
    torch.manual_seed(0)


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
