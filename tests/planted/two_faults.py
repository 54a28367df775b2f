"""One operator whose fault shows beside guard pages only, and one that always faults.

``faulty::all_but_one`` returns an element less than it promises; the C++ for
``copysign`` reads from an address that is never mapped.
"""

import torch
from torch import Tensor
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

BAD_READ = "*reinterpret_cast<const volatile float*>(8)"


@torch.library.custom_op("faulty::all_but_one", mutates_args=())
def all_but_one(values: Tensor) -> Tensor:
    return values.flatten()[:-1].clone()


@all_but_one.register_fake
def promise_all(values: Tensor) -> Tensor:
    return values.new_empty(values.numel())


def print_copysign(magnitude: object, sign: object) -> str:
    return f"({magnitude} + {sign} + decltype({magnitude})({BAD_READ}))"


CppOverrides.copysign = staticmethod(print_copysign)  # type: ignore[method-assign]
CppVecOverrides.copysign = staticmethod(print_copysign)  # type: ignore[method-assign]
