import pytest
import torch


@pytest.fixture(autouse=True)
def seeded():
    """Give every test the same random weights whatever ran before it."""
    torch.manual_seed(0)
