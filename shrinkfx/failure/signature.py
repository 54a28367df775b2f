"""The identity of a failure: kind, stage and normalized message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

from shrinkfx.program.display_text import LINE, cut_distinctly, cut_text


class Kind(StrEnum):
    """Kinds of failure; a failure has the most specific kind that fits."""

    IMA = "ima"
    ASSERT = "assert"
    CRASH = "crash"
    NAN = "nan"
    MISMATCH = "mismatch"
    CHECK_INPUTS = "check-inputs"
    COMPILE_ERROR = "compile-error"
    LOAD_ERROR = "load-error"
    EXCEPTION = "exception"
    HANG = "hang"
    OOM = "oom"
    CHECK = "check"
    """No kind for ``--until``: the user's command reports that a candidate fails."""


ANY = "any"
"""``--until any``: accept any failure that the baseline shows."""

UNTIL = (*(kind.value for kind in Kind if kind is not Kind.CHECK), ANY)

MEANING = {
    Kind.IMA: "illegal memory access, heap corruption",
    Kind.ASSERT: "index-bounds or other run-time assertion",
    Kind.CRASH: "killed by a signal, without a more specific message",
    Kind.NAN: "non-finite values where eager's values are finite",
    Kind.MISMATCH: "dtype, shape or values differ from eager",
    Kind.CHECK_INPUTS: "the compiled program checks its inputs and refuses them",
    Kind.COMPILE_ERROR: "AOTInductor, Triton or the C++ compiler raises",
    Kind.LOAD_ERROR: "the compiled package does not load",
    Kind.EXCEPTION: "any other exception at run time",
    Kind.HANG: "does not end within --timeout",
    Kind.OOM: "requests more memory than is available",
}


class Stage(StrEnum):
    """Stages of a check; the worker notes each stage before it enters it."""

    START = "start"
    REBUILD = "rebuild"
    EAGER = "eager"
    COMPILE = "compile"
    LOAD = "load"
    PASSING = "passing"
    """The run on inputs on which the input program passes; candidates must pass it."""
    RUN = "run"
    COMPARE = "compare"
    DONE = "done"

    @property
    def place(self) -> str:
        """The stage in words."""
        passing = self is Stage.PASSING
        return "at the sizes that must pass" if passing else f"in {self.value}"


_TEXT = 2 * LINE

MEMORY_FAULT = "memory fault"
"""Detail of every death by a memory fault.

Depending on the heap layout, the same overrun shows as SIGSEGV, SIGBUS, ``double free``
or ``malloc(): invalid size``.
"""


@dataclass(frozen=True)
class Signature:
    """The kind, stage and cause of a failure, without details that change.

    The details that change while the program shrinks are not part of the identity.

    Attributes:
        detail: the normalized cause; part of the identity.
        text: the message for the user; not part of the identity, because numbers and
            names in it change.
        match: a regular expression that must match the text of the same failure.
        operators: the operators that the faulting kernel computes, if known. Kernels of
            the same failure share at least one operator; the others disappear as the
            program shrinks.
        beside_nan: for a wrong result: whether other outputs are not finite, which
            would be a different failure.
        differs: for a wrong result: the property that differs from eager, such as
            ``shape``.
        only: the value of ``differs`` that the same failure must have; '' for any.
    """

    kind: Kind
    stage: Stage
    detail: str = ""
    text: str = field(default="", compare=False)
    match: str = field(default="", compare=False)
    operators: tuple[str, ...] = field(default=(), compare=False)
    beside_nan: bool = field(default=False, compare=False)
    differs: str = field(default="", compare=False)
    only: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Limit the length of foreign text, because it is displayed."""
        object.__setattr__(self, "text", cut_text(self.text, _TEXT))
        object.__setattr__(self, "detail", cut_distinctly(self.detail))

    @property
    def is_vague(self) -> bool:
        """Whether unrelated bugs may share this signature: it contains no message."""
        if self.kind is Kind.CHECK:
            return False
        return self.kind is Kind.CRASH or self.detail in ("", MEMORY_FAULT)

    def with_match(self, pattern: str) -> Signature:
        """Require that the text of the same failure matches a regular expression."""
        return replace(self, match=pattern)

    def require_same_difference(self, seen: Signature | None) -> Signature:
        """Require that the same property differs as in ``seen``."""
        return replace(self, only=seen.differs if seen else "")

    @property
    def without_passing_run(self) -> Signature:
        """The same failure as if the run that must pass were the only run."""
        if self.stage is not Stage.PASSING:
            return self
        compared = self.kind in (Kind.MISMATCH, Kind.NAN)
        return replace(self, stage=Stage.COMPARE if compared else Stage.RUN)

    def matches_text(self, pattern: str) -> bool:
        """Return whether the text matches a regular expression."""
        return bool(re.search(pattern, self.text))

    def admits(self, seen: Signature | None) -> bool:
        """Return whether ``seen`` is the failure that this signature identifies."""
        if seen is None or not seen.matches_text(self.match):
            return False
        if self.only and seen.differs != self.only:
            return False
        faults = [s.detail == MEMORY_FAULT for s in (self, seen)]
        # The interpreter describes in more detail what a device reports as a memory
        # fault.
        if all(faults) or (any(faults) and self.kind is seen.kind is Kind.IMA):
            # A GPU also runs kernels while they are compiled, to time them, but not
            # all kernels of a smaller program.
            both = all("illegal memory access" in s.text for s in (self, seen))
            timed = (self.stage, seen.stage) == (Stage.COMPILE, Stage.RUN)
            return self.stage is seen.stage or (both and timed)
        if self.operators and seen.operators:
            return self == seen and not set(self.operators).isdisjoint(seen.operators)
        if {self.kind, seen.kind} <= {Kind.NAN, Kind.MISMATCH}:
            drifts = self.kind is Kind.MISMATCH and not self.beside_nan
            takes = drifts or seen.kind is self.kind
            return takes and self.stage is seen.stage
        return self == seen

    def occurs_in(self, seen: Signature | None) -> bool:
        """Return whether ``seen`` is this failure, also in the run that must pass.

        Any other failure counts as different, such as a wrong shape instead of wrong
        values.
        """
        if seen is None:
            return False
        at_passing = seen.stage is Stage.PASSING
        return self.admits(seen.without_passing_run) and (
            at_passing or seen.differs == self.differs
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read the output of ``asdict``, also of earlier versions."""
        known = {
            each.name: data[each.name] for each in fields(cls) if each.name in data
        }
        known |= {"kind": Kind(data["kind"]), "stage": Stage(data["stage"])}
        return cls(**{**known, "operators": tuple(data.get("operators", ()))})

    def __str__(self) -> str:
        if self.kind is Kind.CHECK:
            return f"--check {self.text}"
        return f"{self.kind} {self.stage.place}: {self.text or self.detail}"


def is_until_target(until: str, seen: Signature) -> bool:
    """Return whether ``--until`` accepts this baseline failure as the target."""
    if seen.stage is Stage.PASSING:
        return False  # this run was declared to pass
    if until == ANY or until == seen.kind:
        return True
    if until in (Kind.IMA, Kind.CRASH):
        return seen.detail == MEMORY_FAULT
    return until == Kind.MISMATCH and seen.kind is Kind.NAN


def describe_changed_difference(before: Signature, after: Signature) -> str:
    """Describe how a wrong result differs in another property; '' if it does not."""
    if not (before.differs and after.differs) or before.differs == after.differs:
        return ""
    return (
        f"wrong {before.differs} in the input program, but wrong {after.differs} in "
        "the reduced program"
    )


_WITH_A_MESSAGE = (
    *(Kind.ASSERT, Kind.CHECK_INPUTS, Kind.COMPILE_ERROR),
    *(Kind.LOAD_ERROR, Kind.EXCEPTION),
)


def looks_alike(requested: str, seen: str) -> bool:
    """Return whether a user may mistake one kind of failure for the other.

    This applies to errors with a message, whose kind depends only on the stage.
    """
    return requested in _WITH_A_MESSAGE and seen in _WITH_A_MESSAGE


def explain_other_kind(requested: str, seen: Kind) -> str:
    """Explain in a sentence why the failure has another kind than requested; or ''.

    Args:
        requested: the value of ``--until``, or '' if it was not given.
    """
    return _OTHER_KIND.get((requested, seen), "") if requested != seen else ""


_OTHER_KIND: Mapping[tuple[str, Kind], str] = {
    (Kind.IMA, Kind.CRASH): (
        "on a CPU, an illegal memory access shows as a segmentation fault (or death by "
        "another signal), so the kind of the failure is crash; --until ima accepts "
        "both kinds"
    ),
    (Kind.CRASH, Kind.IMA): (
        "the process reported an illegal memory access before it died, so the kind of "
        "the failure is ima; --until crash accepts both kinds"
    ),
    (Kind.MISMATCH, Kind.NAN): (
        "the result is not finite where eager's is, so the kind of the failure is nan; "
        "--until mismatch accepts both kinds"
    ),
}


# Remove from a message the parts that change while a program shrinks.
#
# Normalized messages are compared exactly, so they must not contain anything that
# depends on the machine, on sizes, on positions, on the number of neighboring nodes,
# or on vectorization.

_FILE = re.compile(
    r"(?:(?<![\w.)\]])~?/[\w.+@-]+|\b[\w+@-]+(?=/[\w.+@/-]*\.\w))(?:/[\w.+@-]*)*(?::\d+)*"
    r"|\b[\w-]+\.(?:py|c|cc|cpp|cu|h|hpp|o|so|s|S|pt2?)\b(?:[:(]\d+\)?)*"
)
_QUOTED_FILE = re.compile(r"(?<!\w)(['\"])[^'\"\n]*/[^'\"\n]*\1")
_KERNEL = re.compile(r"\b(?:cpp|triton)_\w+")
_DTYPE = re.compile(
    r"\btorch\.(?:b?float|u?int|complex|bool|half|double|long|short)\w*"
    r"|\b(?:at::)?k?(?:Float|Double|Half|BFloat16|Long|Int|Short|Char|Byte|Bool"
    r"|ComplexFloat|ComplexDouble)\b"
)
_POSITION = re.compile(r"(?<=\w)[._]\d+(?=[._]|\b)")
# Names that compilers make up; log2 and exp2, mylib::op1 and mylib::op2 are not.
_NUMBERED = re.compile(
    r"(?<![\w.])(?<!::)([A-Za-z]|\w*_|tmp|buf|arg|op|ks|zuf|(?:in|out|in_out)_ptr)\d+\b"
)
_NUMBER = re.compile(r"(?<![\w#])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\w*")
_SIZES = re.compile(r"([\[(])(?:(?:s|u|ks|zuf)?#[-+*/%, ]*)+([\])])|(\[)(\])")
# g++ quotes with U+2018 and U+2019, and the linker with ` and '.
_QUOTED = re.compile("[\u2018`]([^\u2018\u2019`']*)[\u2019']")
_SUGGESTION = re.compile("; did you mean [^\n]*| \\{aka [^}]*\\}| \\[-\\S+\\]$")
# The pytree of a program's inputs or outputs; (*) is a single value. A smaller program
# returns less, and a long message is cut off inside it.
_STRUCTURE = re.compile(r" ?\(?\bTreeSpec\(.*| \(\*\)\.?", re.DOTALL)
_MANGLED = re.compile(r"\b_Z\w+")
_TYPE = re.compile(
    r"(?:float|double|int|long|short|char|bool|unsigned|signed|void|auto|half"
    r"|u?int\d+_t|size_t|Half|BFloat16)"
)


def normalise(text: str) -> str:
    """Normalize a message of PyTorch.

    >>> normalise("buf12 of [2, s7] in /tmp/x.cpp:3 is torch.half, not at -1e-5")
    'buf# of [#] in is dtype, not at #'
    """
    text = _FILE.sub("", _QUOTED_FILE.sub("", _STRUCTURE.sub("", text)))
    text = _KERNEL.sub("kernel", text)
    text = _DTYPE.sub("dtype", text)
    text = re.sub(r"\b0x[0-9a-f]+\b", "#", text)
    text = _POSITION.sub("", text)
    text = _NUMBERED.sub(r"\1#", text)
    text = _NUMBER.sub("#", text)
    text = _SIZES.sub(r"\1\3#\2\4", text)
    return re.sub(r"\s+", " ", text).strip()


def normalise_cpp(text: str) -> str:
    """Normalize a message of the C++ compiler, the linker or the loader.

    Names of functions and variables are kept. Types are not, because the same line of a
    kernel is compiled for a vector in a large program and for a scalar in a small one.
    """
    text = _SUGGESTION.sub("", text)
    text = _MANGLED.sub(lambda found: demangled_name(found[0]), text)
    return normalise(_QUOTED.sub(lambda found: f"'{_name(found[1])}'", text))


def demangled_name(mangled: str) -> str:
    """Return the name in a mangled symbol, without the parameter types.

    >>> demangled_name("_ZN2at5emptyEl"), demangled_name("_Z3logf")
    ('at::empty', 'log')
    """
    parts, rest = [], re.sub(r"^_Z[NLK]*", "", mangled)
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(parts) or mangled


def _name(quoted: str) -> str:
    """Keep a name, of a function without its parameters; replace a type."""
    head = re.sub(r"<.*", "", quoted.partition("(")[0])
    name = head.split()[-1].rpartition("::")[2] if head.split() else ""
    if "operator" in quoted:
        found = re.search(r"operator\s*[^\s\w(]+", quoted)
        return found[0] if found else "_"
    is_call = "(" in quoted
    if is_call or (re.fullmatch(r"\w+", quoted) and not _TYPE.fullmatch(quoted)):
        return name
    return "_"
