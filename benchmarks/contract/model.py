"""Export an architecture of ``tests/models/``: ``python model.py NAME FILE``."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "models"))

from architectures import MODELS

name, file = sys.argv[1:]
torch.manual_seed(0)
torch.export.save(MODELS[name]().export(dynamic=True), file)
