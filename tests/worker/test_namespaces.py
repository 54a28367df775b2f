"""Whose operators are whose: what PyTorch brings along is known."""

from __future__ import annotations

import subprocess
import sys

import pytest

from shrinkfx.program.pytorch_names import PYTORCH_NAMESPACES

REGISTERED = """
import torch, torch.distributed, torch.ao.quantization.fx._decomposed
import torch._inductor.compile_fx

schemas = torch._C._jit_get_all_schemas()
print(*{schema.name.partition("::")[0] for schema in schemas})
"""


@pytest.mark.torch
def test_namespaces_of_pytorch_are_known() -> None:
    """In a process of its own: other tests register operators."""
    command = [sys.executable, "-W", "ignore", "-c", REGISTERED]
    said = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert "aten" in said.split()
    assert {*said.split()} - PYTORCH_NAMESPACES == set()
