"""Scripts that PyTorch's own minifiers write."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "dumps of PyTorch's minifiers",
    names={"InputReader": "torch._dynamo.debug_utils:InputReader"},
    attributes=("InputReader.storage", "InputReader.tensor", "InputReader.symint"),
    without="a script of PyTorch's minifiers cannot be read",
)

__getattr__ = FEATURE.resolve
