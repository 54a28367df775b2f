"""Where the fake kernel of a custom operator stands."""

from __future__ import annotations

from typing import Any

from torch._library import custom_ops, simple_registry


def fake_kernel_of(target: Any) -> str:
    """Name file and line of a fake kernel; '' where no Python file has it.

    Read off the registries of ``torch/_library``: of ``torch.library.custom_op``, and
    of ``torch.library.register_fake``.
    """
    name = target.name().partition(".")[0]
    defined = custom_ops.OPDEFS.get(name)
    code = getattr(getattr(defined, "_abstract_fn", None), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    kernel = simple_registry.singleton.find(name).fake_impl.kernel
    return str(kernel.source) if kernel is not None else ""
