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
