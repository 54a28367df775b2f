"""CPU implementations of the functions that generated code calls on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Probe
from shrinkfx.worker.interpreter.memory_checks.bounds import (
    CHECKER,
    UNWRITTEN,
    allocate,
)
from shrinkfx.worker.private_api import cuda_api


class LayoutChecks:
    """Replaces the size, stride and dtype assertions in generated code.

    The results of aten operators have the CPU's strides here, so they are copied to the
    declared strides. The results of a custom operator and the inputs of the program
    must have the layout that was declared when the code was generated. A custom
    operator that calls aten operators may also return the layout that was declared on
    the CPU.

    ``stubs`` maps the names in the generated code to the replacements.

    Args:
        on_cpu: the strides that the CPU program declares for each operator's results.
    """

    def __init__(self, on_cpu: Mapping[str, Collection[tuple[int, ...]]]) -> None:
        self._on_cpu = on_cpu
        self.stubs: dict[str, Callable[..., Any]] = {
            "assert_alignment": lambda *_: None,  # switched off: copies are aligned
            "assert_size_stride": self.check,
            "assert_size_stride_grouped": self.check_each,  # since torch 2.14
            "assert_tensor_metadata": self.check,  # since torch 2.14
        }
        self.start()

    def start(self) -> None:
        """Forget the findings of the last call."""
        self.findings: list[KernelFinding] = []
        self.restrided = 0

    def check_each(self, values: Any, sizes: Any, strides: Any, operator: str) -> None:
        """Compare inputs with their declared sizes and strides."""
        for value, size, stride in zip(values, sizes, strides, strict=True):
            self.check(value, size, stride, operator)

    def check(self, value: Any, size: Any, stride: Any, *details: Any) -> Any:
        """Compare a tensor with its declared layout; return a tensor with that layout.

        Args:
            details: the declared dtype, if the assertion has one, and the operator
                that computed the tensor.

        Returns:
            ``value``, or a copy with the declared strides. A mismatch that a copy
            cannot explain is recorded in ``findings``.
        """
        dtype = next((p for p in details if isinstance(p, torch.dtype)), None)
        operator = next((p for p in details if isinstance(p, str)), "input")
        if value is None:  # an optional output
            return None
        if operator != "input":
            CHECKER.roles.set_role_once(value, f"result of {_short(operator)}")
        dtype = dtype or value.dtype
        try:
            if value.dtype is not dtype:
                raise AssertionError(f"expected dtype {dtype} but got {value.dtype}")
            cuda_api.assert_size_stride(value, size, stride, operator)
        except AssertionError as error:
            is_aten = operator.startswith("torch.ops.aten.")
            as_on_cpu = value.stride() in self._on_cpu.get(operator, ())
            as_on_cpu = as_on_cpu and value.dtype is dtype
            if (is_aten or as_on_cpu) and tuple(value.shape) == tuple(size):
                self.restrided += 1
                copied = allocate(size, stride, dtype).copy_(value)
                CHECKER.roles.set_role(copied, f"result of {_short(operator)}")
                return copied
            self._note(str(error), operator)
        return value

    def _note(self, message: str, operator: str) -> None:
        # The further lines are advice, and not part of the finding.
        text = f"{message.splitlines()[0]}\nError in op: {operator}"
        role = operator if operator == "input" else f"result of {_short(operator)}"
        finding = KernelFinding(
            Probe.CONTRACT,
            Fault.LAYOUT,
            operators=(_short(operator),),
            role=role,
            message=text,
        )
        self.findings.append(finding)


class LabeledGenerator:
    """Wraps the function that generates benchmark arguments, and labels its results."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = self._original(*args, **kwargs)
        CHECKER.roles.set_role(value, "made-up argument")
        return value


class LabeledExterns:
    """Wraps Inductor's library calls (``extern_kernels``), and labels their results."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._original, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            CHECKER.roles.set_result_role(kwargs.get("out"), (f"aten.{name}",))
            return function(*args, **kwargs)

        return called


def require_no(what: str, name: str, value: torch.Tensor) -> None:
    """Replace the check that ``nan_asserts`` puts after each kernel.

    Memory that a skipped kernel has left unwritten is not checked.

    Raises:
        RuntimeError: the value has a NaN or an infinity; the message is that of
            AOTInductor's own check.
    """
    if value in CHECKER.partial or not value.is_floating_point():
        return
    number = value.float() if value.dtype.itemsize == 1 else value
    if getattr(torch, f"is{what}")(number).any():
        word = {"nan": "NaN", "inf": "INF"}[what]
        raise RuntimeError(f"At least one {word} in {name}")


def allocate_unwritten(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    """Allocate a tensor in place of ``empty_strided_cuda``; label it as unwritten."""
    tensor = allocate(size, stride, dtype)
    CHECKER.roles.set_role(tensor, UNWRITTEN)
    return tensor


def _short(operator: str) -> str:
    return operator.removeprefix("torch.ops.")
