"""What versions of PyTorch cannot, for tests."""

from __future__ import annotations

import pytest
import torch

since_2_13 = pytest.mark.skipif(
    torch.__version__ < "2.13", reason="older PyTorch does otherwise"
)
hands_on_inputs = pytest.mark.skipif(
    torch.__version__ < "2.13", reason="older PyTorch lets no branch return its input"
)
