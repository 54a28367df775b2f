"""What generated code calls on a GPU, as it is to behave on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch

from shrinkfx.worker.interpreter.findings import Fault, KernelFinding, Probe
from shrinkfx.worker.interpreter.memory_checks.arena import UNWRITTEN, allocate
from shrinkfx.worker.interpreter.memory_checks.bounds import CHECKER
from shrinkfx.worker.private_api import cuda_api


class Contract:
    """Replaces the checks of sizes, strides and dtypes in generated code.

    The results of aten's operators have the CPU's strides, so they are laid out
    anew; what a custom operator returns, and what the program is given, must be as
    was promised when the code was generated; or, of an operator that calls aten's,
    as was promised on the CPU.

    ``stubs`` has the replacements by their names in the generated code.

    Args:
        on_cpu: the strides that an operator's results were promised to have there.
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
        self.findings: list[KernelFinding] = []
        self.restrided = 0

    def check_each(self, values: Any, sizes: Any, strides: Any, operator: str) -> None:
        """Compare inputs with their declared sizes and strides."""
        for value, size, stride in zip(values, sizes, strides, strict=True):
            self.check(value, size, stride, operator)

    def check(self, value: Any, size: Any, stride: Any, *promised: Any) -> Any:
        """Compare a tensor with its declared layout; return one that has this layout.

        Args:
            promised: the declared dtype, if it is checked, and the operator that made
                the tensor.
        """
        dtype = next((p for p in promised if isinstance(p, torch.dtype)), None)
        operator = next((p for p in promised if isinstance(p, str)), "input")
        if value is None:  # an optional output
            return None
        if operator != "input":
            CHECKER.roles.name_once(value, f"result of {_short(operator)}")
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
                made = allocate(size, stride, dtype).copy_(value)
                CHECKER.roles.name(made, f"result of {_short(operator)}")
                return made
            self._note(str(error), operator)
        return value

    def _note(self, said: str, operator: str) -> None:
        # What follows is advice, and not what was seen.
        text = f"{said.splitlines()[0]}\nError in op: {operator}"
        role = operator if operator == "input" else f"result of {_short(operator)}"
        finding = KernelFinding(
            Probe.CONTRACT,
            Fault.LAYOUT,
            operators=(_short(operator),),
            role=role,
            message=text,
        )
        self.findings.append(finding)


class MadeUp:
    """Stands for what makes up arguments for a benchmark; they live on the CPU."""

    def __init__(self, original: Callable[..., Any]) -> None:
        self._original = original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        value = self._original(*args, **kwargs)
        CHECKER.roles.name(value, "made-up argument")
        return value


class Externs:
    """Stands for Inductor's library calls, and names what they write."""

    def __init__(self, original: Any) -> None:
        self._original = original

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._original, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            CHECKER.roles.name_result(kwargs.get("out"), (f"aten.{name}",))
            return function(*args, **kwargs)

        return called


def require_no(what: str, name: str, value: torch.Tensor) -> None:
    """Stand for a check that ``nan_asserts`` puts behind each kernel.

    What a kernel that was not run has left unwritten is not looked at.

    Raises:
        RuntimeError: in the words of AOTInductor's own check.
    """
    if value in CHECKER.partial or not value.is_floating_point():
        return
    number = value.float() if value.dtype.itemsize == 1 else value
    if getattr(torch, f"is{what}")(number).any():
        word = {"nan": "NaN", "inf": "INF"}[what]
        raise RuntimeError(f"At least one {word} in {name}")


def fresh(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    made = allocate(size, stride, dtype)
    CHECKER.roles.name(made, UNWRITTEN)
    return made


def _short(operator: str) -> str:
    return operator.removeprefix("torch.ops.")
