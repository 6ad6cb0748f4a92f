"""One thread a test process, and folders of helper modules importable by workers."""

import sys
from pathlib import Path

import torch
from hypothesis import settings

torch.set_num_threads(1)
for folder in ("compress", "crosstest", "sparse"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
settings.register_profile("sparsemod", deadline=None)  # a busy machine is no failure
settings.load_profile("sparsemod")
