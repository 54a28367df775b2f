"""The content of a .pt2, read without executing code from it."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "reading a .pt2",
    names={
        "serialize": "torch._export.serde.serialize",
        "pickle_save": "torch._C:_pickle_save",
        "pickle_load": "torch._C:_pickle_load_obj",
    },
    attributes=("serialize.treespec_loads",),
    without="programs cannot be read",
)

__getattr__ = FEATURE.resolve
