"""What operators declare of themselves, and what they do: told in fields, said here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.program.listing.recipes import itemsize
from shrinkfx.program.listing.strides import reach
from shrinkfx.protocol.record import Message, Reported


@dataclass(frozen=True)
class TensorFacts(Message):
    """A tensor, without its values.

    Attributes:
        dtype: ``float32``.
        shape: None of a size that depends on data; so it is of ``strides``.
        layout: ``sparse_coo`` and the like, which have no strides; '' of all others.
    """

    dtype: str
    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    device: str = "cpu"
    layout: str = ""

    @property
    def nbytes(self) -> int | None:
        """Count bytes from its first element to the end of its last; None where that
        depends on data, or it has no strides."""
        shape = [size for size in self.shape if size is not None]
        strides = [step for step in self.strides if step is not None]
        if self.layout or len(shape) + len(strides) < 2 * len(self.shape):
            return None
        return reach(shape, strides) * itemsize(self.dtype)

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


def differing(declared: TensorFacts, made: TensorFacts) -> tuple[str, ...]:
    """Name what of a tensor is not as it is declared: ``dtype``, ``strides``."""
    found = ["dtype"] if declared.dtype != made.dtype else []
    if _of_a_kind(declared.device) != _of_a_kind(made.device):
        found.append("device")
    if declared.layout != made.layout:
        found.append("layout")
    if not _agree(declared.shape, made.shape):
        found.append("shape")
    elif not _agree(*_where_they_count(declared, made)):
        found.append("strides")
    return tuple(found)


def _of_a_kind(device: str) -> str:
    return device.partition(":")[0]


def _agree(declared: tuple[int | None, ...], made: tuple[int | None, ...]) -> bool:
    pairs = zip(declared, made, strict=False)
    return len(declared) == len(made) and all(a in (None, b) for a, b in pairs)


def _where_they_count(
    declared: TensorFacts, made: TensorFacts
) -> tuple[tuple[int | None, ...], tuple[int | None, ...]]:
    """Take the strides of dims in which there are steps."""
    counts = [size != 1 for size in made.shape] if 0 not in made.shape else []
    both = (declared.strides, made.strides)
    first, second = (
        tuple(step for step, is_one in zip(steps, counts, strict=False) if is_one)
        for steps in both
    )
    return first, second


@dataclass(frozen=True)
class FakeMismatch(Message):
    """A result of an operator that is not what the program's metadata says of it.

    Attributes:
        node: of the operator, ``operator`` what that calls.
        place: which of several results, ``[1]``; or ''.
        within: the node of the program that runs it: itself, or the ``cond`` in whose
            branch it is.
    """

    node: str
    operator: str
    place: str
    declared: TensorFacts
    made: TensorFacts
    within: str

    @property
    def about(self) -> str:
        """What calls of the operator are wrong about: ``my.rope.default: strides``."""
        wrong = differing(self.declared, self.made) or ("strides",)
        return f"{self.operator}{self.place}: {', '.join(wrong)}"

    @property
    def is_short(self) -> bool:
        """Tell whether its memory ends before it is declared to."""
        declared, made = self.declared.nbytes, self.made.nbytes
        return declared is not None and made is not None and made < declared

    @property
    def is_of_strides(self) -> bool:
        """Tell whether nothing else is otherwise."""
        return differing(self.declared, self.made) in ((), ("strides",))

    @property
    def said(self) -> str:
        """What is otherwise, in words."""
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
        """All of it, in words."""
        return f"{self.node} ({self.operator}){self.place} {self.said}"


class What(StrEnum):
    """What an operator does that it does not declare."""

    WRITES = "writes"
    SHARES = "shares"
    FAKE = "fake"
    FIXES = "fixes"
    DIES = "dies"
    STRAYS = "strays"
    UNFILLED = "unfilled"
    UNSTEADY = "unsteady"
    LAYOUT = "layout"


OF_VALUES = {
    What.STRAYS: "returns different values if the memory around its arguments differs: "
    "it reads out of bounds",
    What.UNFILLED: "returns values computed from uninitialized memory",
    What.UNSTEADY: "returns different values in each call with the same arguments",
    What.LAYOUT: "returns different values if the strides of its arguments differ, "
    "although its tag flexible_layout allows compilers to change strides",
}
"""What an operator's values depend on, besides those of its arguments."""


_UNDECLARED = "which its schema does not declare"


@dataclass(frozen=True)
class OperatorFinding(Reported):
    """One such thing, at the first sizes where it shows: a line of its file each.

    Attributes:
        operator: what is called: ``mine.pool.default``.
        node: by which.
        call: with what, in words: ``given q[2, 8], heads=2``; or ''.
        argument: that is written to, or whose memory is returned; '' where results
            share theirs with each other.
        place: which of several results; None of one alone.
        declared, made: that result, as its fake kernel promises it and as it is.
        dim: of it that is promised to have one size at all sizes of the program.
        error: what its fake kernel raises, or the signal that it dies of.
        fake_kernel: file and line of it, ``/home/me/ops.py:12``; '' where no Python
            file has it, or it does not matter.
    """

    operator: str
    what: What
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
    def said(self) -> str:
        """What it does, in words."""
        match self.what:
            case What.WRITES:
                return f"writes to its argument {self.argument}, {_UNDECLARED}"
            case What.SHARES if self.argument:
                return f"returns memory of its argument {self.argument}, {_UNDECLARED}"
            case What.SHARES:
                return f"returns results that share memory, {_UNDECLARED}"
            case What.DIES:
                where = "in eager at sizes that the program declares"
                told = f"crashes with {self.error} {where}"
                return ", ".join(filter(None, (told, self.call)))
            case what if what in OF_VALUES:
                return ", ".join(filter(None, (OF_VALUES[what], self.call)))
        told = f"has a fake kernel that {self._promises()}"
        return ", ".join(filter(None, (told, self.call)))

    @property
    def text(self) -> str:
        """All of it, in words."""
        return f"{self.node} ({self.operator}) {self.said}"

    def _promises(self) -> str:
        """Say what its fake kernel does, and what the operator."""
        if self.declared is None or self.made is None:
            return f"raises {self.error}"
        declared, made = self.declared, self.made
        result = "its result" if self.place is None else f"its result {self.place}"
        if self.what is What.FIXES:
            sizes = f"{declared.shape[self.dim]}: not SymInt-aware; it is"
            return f"fixes dim {self.dim} of {result} to {sizes} {made.shape[self.dim]}"
        on = "device" in differing(declared, made)
        real, fake = (f"{t} on {t.device}" if on else str(t) for t in (made, declared))
        return f"promises {fake}; {result} is {real}"
