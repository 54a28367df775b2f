"""Records about operators that behave differently from their declarations.

They hold data; their properties turn it into sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.program.listing.tensor_specs import itemsize, storage_span
from shrinkfx.protocol.record import Message, Reported


@dataclass(frozen=True)
class TensorFacts(Message):
    """A tensor without its values.

    Attributes:
        dtype: such as ``float32``.
        shape: the sizes; None for a size that depends on data. ``strides`` likewise.
        layout: ``sparse_coo`` and similar layouts, which have no strides; else ''.
    """

    dtype: str
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    device: str = "cpu"
    layout: str = ""

    @property
    def nbytes(self) -> int | None:
        """The bytes from the first element to the end of the last one.

        None if the number depends on data, or if the tensor has no strides.
        """
        shape = [size for size in self.shape if size is not None]
        strides = [step for step in self.strides if step is not None]
        if self.layout or len(shape) + len(strides) < 2 * len(self.shape):
            return None
        return storage_span(shape, strides) * itemsize(self.dtype)

    @property
    def sizes(self) -> str:
        return _listed(self.shape)

    @property
    def steps(self) -> str:
        return _listed(self.strides)

    def __str__(self) -> str:
        laid = f" with strides {self.steps}" if not self.layout else f" ({self.layout})"
        return f"{self.dtype}{self.sizes}{laid}"


def _listed(numbers: tuple[int | None, ...]) -> str:
    return f"[{', '.join('?' if n is None else str(n) for n in numbers)}]"


def differing_properties(declared: TensorFacts, made: TensorFacts) -> tuple[str, ...]:
    """Name the properties that differ from the declaration, such as ``strides``."""
    differing = ["dtype"] if declared.dtype != made.dtype else []
    if _of_a_kind(declared.device) != _of_a_kind(made.device):
        differing.append("device")
    if declared.layout != made.layout:
        differing.append("layout")
    if not _agree(declared.shape, made.shape):
        differing.append("shape")
    elif not _agree(*_where_they_count(declared, made)):
        differing.append("strides")
    return tuple(differing)


def _of_a_kind(device: str) -> str:
    return device.partition(":")[0]


def _agree(declared: tuple[int | None, ...], made: tuple[int | None, ...]) -> bool:
    pairs = zip(declared, made, strict=False)
    return len(declared) == len(made) and all(a in (None, b) for a, b in pairs)


def _where_they_count(
    declared: TensorFacts, made: TensorFacts
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Return the strides of the dims whose size is not 1; others do not matter."""
    counts = [size != 1 for size in made.shape] if 0 not in made.shape else []
    both = (declared.strides, made.strides)
    first, second = (
        tuple(step for step, is_one in zip(steps, counts, strict=False) if is_one)
        for steps in both
    )
    return first, second


@dataclass(frozen=True)
class FakeMismatch(Message):
    """A result of an operator that differs from the program's metadata.

    Attributes:
        node: the node of the operator; ``operator`` is its target.
        place: which of several results differs, such as ``[1]``; or ''.
        within: the program node that runs the operator: the node itself, or the
            ``cond`` whose branch contains it.
    """

    node: str
    operator: str
    place: str
    declared: TensorFacts
    made: TensorFacts
    within: str

    @property
    def about(self) -> str:
        """The wrong properties of the result, such as ``my.rope.default: strides``."""
        wrong = differing_properties(self.declared, self.made) or ("strides",)
        return f"{self.operator}{self.place}: {', '.join(wrong)}"

    @property
    def is_short(self) -> bool:
        """Whether the storage is smaller than declared."""
        declared, made = self.declared.nbytes, self.made.nbytes
        return declared is not None and made is not None and made < declared

    @property
    def is_of_strides(self) -> bool:
        """Whether only the strides differ."""
        return differing_properties(self.declared, self.made) in ((), ("strides",))

    @property
    def difference_text(self) -> str:
        """The difference, in words."""
        real, fake = (
            f"torch.{t.dtype}{t.sizes} on {t.device}"
            for t in (self.made, self.declared)
        )
        has = f"is {real}"
        if self.is_of_strides:
            has, fake = f"has strides {self.made.steps}", str(self.declared.steps)
        return f"{has}, but its fake kernel declares {fake}"

    @property
    def text(self) -> str:
        """The operator and the difference; a repro has another name for the node."""
        return f"{self.operator}{self.place} {self.difference_text}"


class Misbehavior(StrEnum):
    """A behavior of an operator that its declaration does not state."""

    WRITES = "writes"
    SHARES = "shares"
    FAKE = "fake"
    FIXES = "fixes"
    DIES = "dies"
    STRAYS = "strays"
    UNFILLED = "unfilled"
    UNSTEADY = "unsteady"
    LAYOUT = "layout"


VALUE_DEPENDENCIES = {
    Misbehavior.STRAYS: "reads out of bounds: its result depends on the memory around "
    "its arguments",
    Misbehavior.UNFILLED: "returns values computed from uninitialized memory",
    Misbehavior.UNSTEADY: "returns different values in each call with the same "
    "arguments",
    Misbehavior.LAYOUT: "returns different values if the strides of its arguments "
    "differ, although its tag flexible_layout allows compilers to change them",
}
"""Causes, other than argument values, that an operator's results depend on."""


UNDECLARED_EFFECTS = {Misbehavior.WRITES, Misbehavior.SHARES}
"""Effects on memory that an operator has, and that its schema does not declare."""

_UNDECLARED = "but its schema does not declare that"


@dataclass(frozen=True)
class OperatorFinding(Reported):
    """An undeclared behavior of an operator, at the first sizes that show it.

    The findings file has one line for each.

    Attributes:
        operator: the target, such as ``mine.pool.default``.
        node: the node that calls it.
        call: the arguments, such as ``when called with q=float32[2, 8], heads=2``; or
            ''.
        argument: the argument that is written to, or whose memory is returned; '' if
            results share memory with each other.
        place: which of several results is concerned; None for a single result.
        declared, made: the result as the fake kernel declares it, and the actual
            result.
        dim: the dim of the result that the fake kernel declares to have one size at all
            sizes of the program.
        error: the error that the fake kernel raises, or the signal that kills the
            operator.
        fake_kernel: file and line of the fake kernel, ``/home/me/ops.py:12``; '' if it
            is in no Python file, or does not matter.
    """

    operator: str
    what: Misbehavior
    node: str
    call: str = ""
    argument: str = ""
    place: int | None = None
    declared: TensorFacts | None = None
    made: TensorFacts | None = None
    dim: int = 0
    error: str = ""
    fake_kernel: str = ""

    @property
    def behavior_text(self) -> str:
        """The behavior, in words."""
        match self.what:
            case Misbehavior.WRITES:
                return f"writes to its argument {self.argument}, {_UNDECLARED}"
            case Misbehavior.SHARES if self.argument:
                return f"returns memory of its argument {self.argument}, {_UNDECLARED}"
            case Misbehavior.SHARES:
                return f"returns results that share memory, {_UNDECLARED}"
            case Misbehavior.DIES:
                where = "in eager at sizes that the program declares"
                text = f"crashes with {self.error} {where}"
                return ", ".join(filter(None, (text, self.call)))
            case what if what in VALUE_DEPENDENCIES:
                return ", ".join(filter(None, (VALUE_DEPENDENCIES[what], self.call)))
        text = f"has a fake kernel that {self._promises()}"
        return ", ".join(filter(None, (text, self.call)))

    @property
    def text(self) -> str:
        """The operator and the behavior; a repro has another name for the node."""
        return f"{self.operator} {self.behavior_text}"

    def _promises(self) -> str:
        """Describe what the fake kernel declares and what the operator returns."""
        if self.declared is None or self.made is None:
            return f"raises {self.error}"
        declared, made = self.declared, self.made
        result = "its result" if self.place is None else f"its result {self.place}"
        if self.what is Misbehavior.FIXES:
            size = f"size {declared.shape[self.dim]} for dim {self.dim} of {result}"
            real = f"the size is {made.shape[self.dim]}"
            return f"declares {size}, whatever the input sizes, but {real}"
        on = "device" in differing_properties(declared, made)
        real, fake = (f"{t} on {t.device}" if on else str(t) for t in (made, declared))
        of = "" if self.place is None else f" for {result}"
        return f"declares {fake}{of}, but the operator returns {real}"
