"""Source locations of the fake kernels of custom operators."""

from __future__ import annotations

from typing import Any

from shrinkfx.worker.private_api import operator_api


def find_fake_kernel(target: Any) -> str:
    """Return file and line of a fake kernel; '' if it is in no Python file.

    The location comes from the registries of ``torch/_library``: of
    ``torch.library.custom_op``, and of ``torch.library.register_fake``.
    """
    if operator_api.FEATURE.missing:
        return ""
    name = target.name().partition(".")[0]
    defined = operator_api.custom_ops.OPDEFS.get(name)
    code = getattr(getattr(defined, "_abstract_fn", None), "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    kernel = operator_api.simple_registry.singleton.find(name).fake_impl.kernel
    return str(kernel.source) if kernel is not None else ""
