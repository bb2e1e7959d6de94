"""Shared fixtures: one seeded generator, and no threads fighting over two cores."""

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
