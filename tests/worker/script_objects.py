"""A preload: the classes and operators that PyTorch brings for its own tests."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.testing._internal import torchbind_impls

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorchbind_test.so"

if not hasattr(torch.ops._TorchScriptTesting, "takes_foo"):
    torch.ops.load_library(str(LIBRARY))  # type: ignore[no-untyped-call]
    torchbind_impls.register_fake_operators()  # type: ignore[no-untyped-call]
    torchbind_impls.register_fake_classes()  # type: ignore[no-untyped-call]
