"""Comparison of fake kernels with the real results of operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from shrinkfx.program.display_text import first_line
from shrinkfx.worker.model import Keywords
from shrinkfx.worker.private_api import operator_api
from shrinkfx.worker.private_api.graph_api import FakeTensorMode, pytree


def call_fake_kernel(
    target: Any, args: Sequence[Any], kwargs: Keywords
) -> list[Any] | str | None:
    """Call the fake kernel of an operator at the sizes of real arguments.

    Returns:
        Its results; the text of the exception that it raises; None if the arguments
        have no fake counterparts.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        if isinstance(value, torch.ScriptObject):
            return operator_api.maybe_to_fake_obj(mode, value)
        if not isinstance(value, Tensor):
            return value
        return mode.from_tensor(value, static_shapes=True)

    try:
        faked = pytree.tree_map(fake, (tuple(args), kwargs))
    except Exception:  # noqa: BLE001 - no fault of the operator's
        return None
    try:
        with mode:
            return pytree.tree_leaves(target(*faked[0], **faked[1]))
    except Exception as error:  # noqa: BLE001 - whatever the user's kernel raises
        return f"{type(error).__name__}: {first_line(str(error)):.200}"


@dataclass
class ShapeHistory:
    """The fake and real shapes of one result, over several runs."""

    seen: list[tuple[list[Any], list[int]]] = field(default_factory=list)

    def see(self, fake: Tensor, real: Tensor) -> None:
        """Record the fake and the real shape in a run."""
        promised = [s if isinstance(s, int) else None for s in fake.shape]
        if fake.dim() == real.dim():
            self.seen.append((promised, list(real.shape)))

    def find_fixed_dim(self) -> int | None:
        """Return the dim that is fixed in the fake kernel but varies, or None."""
        for dim, size in enumerate(self.seen[-1][0] if self.seen else ()):
            declared = {promised[dim] for promised, _ in self.seen}
            actual = {real[dim] for _, real in self.seen}
            latest = self.seen[-1][1][dim]
            if size not in (None, latest) and len(declared) == 1 < len(actual):
                return dim
        return None


def has_mismatch(fake: Tensor, real: Tensor) -> bool:
    """Return whether a fake and a real result disagree.

    Dtype, device and sizes are compared, and the strides of dims longer than 1. Sizes
    that depend on data agree with any number.
    """
    if (fake.dtype, fake.device.type, fake.dim()) != (
        *(real.dtype, real.device.type, real.dim()),
    ):
        return True
    if real.layout != torch.strided or fake.layout != torch.strided:
        return fake.layout != real.layout
    known = [isinstance(size, int) for size in fake.shape]
    if any(k and a != b for k, a, b in zip(known, fake.shape, real.shape, strict=True)):
        return True
    steps = zip(real.shape, fake.stride(), real.stride(), strict=True)
    return bool(real.numel()) and any(
        size > 1 and isinstance(declared, int) and declared != step
        for size, declared, step in steps
    )
