"""The content of a .pt2, read without executing code from it."""

from __future__ import annotations

from typing import Any

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "reading a .pt2",
    names={
        "serialize": "torch._export.serde.serialize",
        "schema": "torch._export.serde.schema",
        "Union": "torch._export.serde.union:_Union",
        "sympy_functions": "torch.utils._sympy.functions",
        "OpNamespace": "torch._ops:_OpNamespace",
        "HigherOrderNamespace": "torch._ops:_HigherOrderNamespace",
        "PyTorchFileReader": "torch._C:PyTorchFileReader",
        "pickle_save": "torch._C:_pickle_save",
        "pickle_load": "torch._C:_pickle_load_obj",
        "custom_class_schemas": "torch._C:_jit_get_custom_class_schemas",
        "global_fake_class_registry": (
            "torch._library.fake_class_registry:global_fake_class_registry"
        ),
    },
    attributes=(
        "schema.ExportedProgram",
        "schema.Node",
        "schema.PayloadConfig",
        "serialize.GraphModuleDeserializer",
    ),
    without="programs cannot be read",
)


def __getattr__(name: str) -> Any:
    return FEATURE.resolve(name)
