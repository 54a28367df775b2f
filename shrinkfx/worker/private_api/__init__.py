"""All that shrinkfx uses of PyTorch and Triton and that they do not promise to keep.

A module for each feature: its ``FEATURE`` lists the names, where they come from, in
which versions they were read, and what happens without them. The rest of the worker
takes them from here, as ``build_api.CppBuilder``; nothing is imported before it is
used. Porting to a new PyTorch begins with ``tests/worker/test_private_api.py``.
"""

from __future__ import annotations

import importlib

from shrinkfx.worker.private_api.feature import Feature

MODULES = (
    "graph_api",
    "inductor_api",
    "archive_api",
    "build_api",
    "first_lowering_api",
    "weights_api",
    "codegen_api",
    "operator_api",
    "dump_api",
    "cuda_api",
    "triton_api",
)


def features() -> list[Feature]:
    """List all features, those that shrinkfx cannot do without first."""
    modules = (importlib.import_module(f"{__name__}.{name}") for name in MODULES)
    return [module.FEATURE for module in modules]
