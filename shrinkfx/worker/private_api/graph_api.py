"""Exported graphs: their containers, operators, fake tensors and sizes."""

from typing import TYPE_CHECKING

from shrinkfx.worker.private_api.feature import Feature

if TYPE_CHECKING:
    from torch.utils import _pytree as pytree  # noqa: F401 - for the type checker

FEATURE = Feature(
    "exported graphs",
    names={
        "pytree": "torch.utils._pytree",
        "TorchDispatchMode": "torch.utils._python_dispatch:TorchDispatchMode",
        "OpOverload": "torch._ops:OpOverload",
        "OpOverloadPacket": "torch._ops:OpOverloadPacket",
        "HigherOrderOperator": "torch._ops:HigherOrderOperator",
        "FakeTensor": "torch._subclasses.fake_tensor:FakeTensor",
        "FakeTensorMode": "torch._subclasses.fake_tensor:FakeTensorMode",
        "DispatchKey": "torch._C:DispatchKey",
        "PythonPrinter": "torch.utils._sympy.printers:PythonPrinter",
        "ValueRanges": "torch.utils._sympy.value_ranges:ValueRanges",
        "bound_sympy": "torch.utils._sympy.value_ranges:bound_sympy",
        "int_oo": "torch.utils._sympy.numbers:int_oo",
        "default_tolerances": "torch.testing._comparison:default_tolerances",
        "UserError": "torch._dynamo.exc:UserError",
        "UncapturedHigherOrderOpError": (
            "torch._dynamo.exc:UncapturedHigherOrderOpError"
        ),
    },
    attributes=(
        "DispatchKey.CompositeImplicitAutograd",
        "DispatchKey.Python",
        "pytree.NO_SERIALIZED_TYPE_NAME_FOUND",
        "pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE",
        "pytree.SUPPORTED_NODES",
        "pytree.tree_flatten",
        "pytree.tree_leaves",
        "pytree.tree_map",
        "pytree.tree_structure",
        "pytree.tree_unflatten",
    ),
    without="shrinkfx cannot start",
)

__getattr__ = FEATURE.resolve
