"""Registries of operators: the source and the fake kernel of an operator."""

from shrinkfx.worker.private_api.feature import Feature

FEATURE = Feature(
    "custom operators",
    names={
        "custom_ops": "torch._library.custom_ops",
        "simple_registry": "torch._library.simple_registry",
        "maybe_to_fake_obj": "torch._library.fake_class_registry:maybe_to_fake_obj",
        "dispatch_dump": "torch._C:_dispatch_dump",
        "all_operator_names": "torch._C:_dispatch_get_all_op_names",
    },
    attributes=("custom_ops.OPDEFS", "simple_registry.singleton"),
    without="custom operators are not examined, and their source is not found",
)

__getattr__ = FEATURE.resolve
