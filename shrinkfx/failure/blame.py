"""Rank the operators that a failure may come from, by the evidence of a failing run."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Signature, Stage
from shrinkfx.program.skeleton import Role, Skeleton, ancestors
from shrinkfx.protocol.files import Code, Launch, Traces


@dataclass(frozen=True)
class Suspect:
    """An operator that may cause the failure.

    Attributes:
        weight: above 0; 1 means almost certain.
        why: the evidence against it.
        operator: its target.
        source: ``file.py:41`` of the user's code, or ''.
    """

    node: str
    weight: float
    why: str
    operator: str = ""
    source: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, [f"{self.operator} {self.why}", self.source]))


@dataclass(frozen=True)
class Evidence:
    """Evidence about nodes of the searched graph, by their names in that graph.

    Attributes:
        launches: the compiled program's kernels, in launch order.
        text: the messages of the run.
        raised_at: nodes that the compiler was processing, those of the innermost call
            first.
        kernel: the kernel that the compiler was processing, or ''.
        launch: which launch of the named kernel failed, from 1; 0 if unknown.
        printed: the output of a run that prints before and after each launch.
        stopped: the node at which eager itself fails, or ''.
        mismatched: operators whose results disagree with their fake kernels.
        code: addresses of the kernels' machine code.
        differing: values that differ from eager's.
        agreeing: values that agree with eager's.
    """

    launches: tuple[Launch, ...] = ()
    text: str = ""
    raised_at: tuple[tuple[str, ...], ...] = ()
    kernel: str = ""
    launch: int = 0
    printed: str = ""
    stopped: str = ""
    mismatched: tuple[str, ...] = ()
    code: tuple[Code, ...] = ()
    differing: tuple[str, ...] = ()
    agreeing: tuple[str, ...] = ()

    @classmethod
    def from_traces(cls, traces: Traces) -> Self:
        """Create the evidence from the traces of a worker."""
        details = traces.message, traces.raised_at, traces.kernel, traces.launch
        return cls(traces.launches, *details, code=traces.code)


@dataclass(frozen=True)
class Tie:
    """Suspects with equal weights; their order carries no information.

    Attributes:
        rank: one more than the number of suspects with larger weights.
    """

    rank: int
    members: tuple[Suspect, ...]

    @property
    def is_explained(self) -> bool:
        """Whether one reason makes all of them suspects."""
        return len({member.why for member in self.members}) == 1

    def __str__(self) -> str:
        first, *others = self.members
        if not others:
            return f"suspect: {first}"
        why = f", each of which {first.why}"
        if first.why.startswith(_IN_KERNEL):
            why = f" of kernel {first.why.removeprefix(_IN_KERNEL)}"
        # A higher-order operator has no overload: ``cond``.
        names = (m.operator.rpartition(".")[0] or m.operator for m in self.members)
        calls = Counter(names).items()
        called = [f"{name} ({n} calls)" if n > 1 else name for name, n in calls]
        shown = called[:_SHOWN] + ["..."] * (len(called) > _SHOWN)
        return f"suspects: {len(self.members)} operators{why}: {', '.join(shown)}"


def group_ties(suspects: Sequence[Suspect]) -> list[Tie]:
    """Group suspects of equal weight, the largest weight first."""
    ties: list[Tie] = []
    for _, members in itertools.groupby(suspects, key=lambda suspect: suspect.weight):
        rank = 1 + sum(len(tie.members) for tie in ties)
        ties.append(Tie(rank, tuple(members)))
    return ties


_SHOWN = 3
"""The number of operators that a tie shows by name."""

_IN_KERNEL = "in kernel "


def rank_suspects(
    evidence: Evidence, skeleton: Skeleton, failure: Signature
) -> tuple[Suspect, ...]:
    """List the operators that the failure may come from, the most likely first."""
    suspects: dict[str, Suspect] = {}
    for name, weight, why in _accusations(evidence, skeleton, failure):
        node = skeleton.node(skeleton.producer(name)) if name in skeleton else None
        if node is None or node.role is not Role.OPERATOR:
            continue
        known = suspects.get(node.name)
        if known is None or known.weight < weight:
            location = (node.target, node.source)
            suspects[node.name] = Suspect(node.name, round(weight, 3), why, *location)
    in_order = [suspects[name] for name in skeleton.in_order(suspects)]
    return tuple(sorted(in_order, key=lambda suspect: -suspect.weight))


def _accusations(
    evidence: Evidence, skeleton: Skeleton, failure: Signature
) -> Iterator[Accusation]:
    for name in evidence.mismatched:
        yield (
            name,
            _weight_of_mismatch(failure),
            "has a fake kernel that disagrees with its real one",
        )
    if evidence.stopped:
        # A compile error does not depend on data, so eager's error may be another one.
        sure = 0.3 if failure.stage is Stage.COMPILE else 1.0
        yield evidence.stopped, sure, "fails in eager too"
    if evidence.differing:
        yield from accuse_first_divergence(
            skeleton, evidence.differing, evidence.agreeing
        )
    for weight, names in zip((1.0, 0.5), evidence.raised_at, strict=False):
        for name in names:
            yield name, weight, _AT_WORK
    yield from _accuse_named_operators(evidence, skeleton)
    if number := _find_named_launches(evidence):
        sure = 1.0 if _USERS in evidence.text else 0.9
        yield from _accuse_kernel_nodes(evidence, number, skeleton, failure, sure)
    elif failure.stage is Stage.RUN:
        kernels = [launch.kernel for launch in evidence.launches]
        place = find_faulting_launch(kernels, evidence.code, evidence.text)
        sure = _FAULTED
        if place is None:
            place = find_reached_launch(kernels, evidence.printed)
            # A corrupt heap becomes visible later than where it was corrupted.
            sure = 0.4 if failure.kind is Kind.IMA else _FAULTED
        if place is not None:
            yield from _accuse_kernel_nodes(evidence, [place], skeleton, failure, sure)


def _weight_of_mismatch(failure: Signature) -> float:
    if failure.kind is Kind.IMA or failure.detail == MEMORY_FAULT:
        return 1.0
    return 0.3 if failure.stage is Stage.COMPILE else 0.8


_FAULTED = 0.8
"""The weight of the operators in the kernel in which the process died."""

_AT_WORK = "was being compiled"
_RESULT_OF = re.compile(
    r"\(result of ([^()]+)\)|^Error in op: (?:torch\.ops\.)?(\S+)", re.MULTILINE
)
_ATEN_FRAME = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_TARGET = re.compile(r"^\s*target: (\S+)", re.MULTILINE)


def _accuse_named_operators(
    evidence: Evidence, skeleton: Skeleton
) -> Iterator[Accusation]:
    """Accuse all operators whose target or ATen name occurs in a message."""
    text = evidence.text
    called = dict.fromkeys(_ATEN_FRAME.findall(text), "raises")
    for word in _TARGET.findall(text):
        called[word] = _AT_WORK
    for role, layout in _RESULT_OF.findall(text):
        words = (role or layout).split(", ")
        if layout or not words[0].startswith("aten."):  # else a kernel, which ran well
            called |= dict.fromkeys(words, "computed the value at which the run fails")
    for name in skeleton.operators:
        target = skeleton.node(name).target
        namespace, _, rest = target.partition(".")
        packet = rest.rpartition(".")[0]
        for word in (packet, f"{namespace}.{packet}", target):
            if word in called and packet:
                yield name, 0.7 if namespace == "aten" else 0.95, called[word]


def _find_named_launches(evidence: Evidence) -> list[int]:
    """Find the launches of the kernel that the failure names first.

    Several operators may launch the same kernel. The result is the failing launch if it
    is known, else all launches of this kernel.
    """
    kernels = {launch.kernel for launch in evidence.launches}
    text = f"{evidence.kernel}\n{evidence.text}"
    words = [w for w in re.findall(r"\w[\w.]*", text) if w in kernels]
    if not words:
        # A compiler names a user's kernel without the number that Inductor appends.
        users = [k for k in kernels if not _INDUCTORS.search(k)]
        bases = {re.sub(r"_\d+$", "", k): k for k in users}
        words = [bases[w] for w in re.findall(r"\w+", text) if w in bases]
    places = enumerate(evidence.launches)
    named = [n for n, launch in places if words and launch.kernel == words[0]]
    failing = named[evidence.launch - 1 : evidence.launch] if evidence.launch else []
    return failing or named


_INDUCTORS = re.compile(r"(?:^|_)(?:cpp|cuda|triton_[a-z]{3})_fused_")
"""The names of Inductor's own kernels. A user's may be called ``norm_fused``."""

_USERS = "(user kernel "
"""The text after the name of a user's kernel in a finding of the interpreter."""


def _accuse_kernel_nodes(
    evidence: Evidence,
    accused: Sequence[int],
    skeleton: Skeleton,
    failure: Signature,
    sure: float,
) -> Iterator[Accusation]:
    """Accuse the nodes of a kernel, with less weight for those that ran well elsewhere.

    The kernel of a custom operator is attributed to this operator, whatever other nodes
    it names.
    """
    launches = evidence.launches
    kernel = launches[accused[0]].kernel
    names = [name for place in accused for name in launches[place].nodes]
    names = [name for name in dict.fromkeys(names) if name in skeleton]
    owners = _owners(kernel, names, evidence.text, skeleton)
    if failure.stage is Stage.COMPILE:
        passed = [launch.nodes for launch in launches if launch.kernel != kernel]
    else:
        passed = [launch.nodes for launch in launches[: accused[0]]]
    branching = _find_subgraph_operators(
        names, skeleton
    )  # some of several kernels are well
    cleared = {name for nodes in passed for name in nodes} - owners - branching
    kinds = {skeleton.node(name).target for name in cleared if name in skeleton}
    accountable = owners or branching or {*names}
    for name in filter(accountable.__contains__, names):
        weight = sure * (0.3 if name in cleared else 1.0)
        weight *= 0.6 if skeleton.node(name).target in kinds else 1.0
        if failure.detail == _BOUNDS and not _indexes(skeleton, name):
            weight *= 0.5
        yield name, sure if name in owners else weight, f"{_IN_KERNEL}{kernel}"


_BOUNDS = "index out of bounds"
_INDEXING = re.compile(
    r"index|embedding|gather|scatter|take|roll|flip|slice|select|strided|pad|pool"
    r"|unfold|upsample|grid|sort|topk|searchsorted|bucketize|put|one_hot|diagonal"
)


def _indexes(skeleton: Skeleton, name: str) -> bool:
    """Return whether an operator may compute an index: custom, or an indexing one."""
    target = skeleton.node(name).target
    return not target.startswith("aten.") or bool(_INDEXING.search(target))


def _owners(
    kernel: str, names: Sequence[str], text: str, skeleton: Skeleton
) -> set[str]:
    """Find the custom operators that own a user's kernel; none for Inductor's kernels.

    Inductor lists neighboring nodes with this kernel, and custom operators with the
    neighbors' kernels.
    """
    if _INDUCTORS.search(kernel) and f"in {kernel} {_USERS}" not in text:
        return set()
    return {n for n in names if not skeleton.node(n).target.startswith("aten.")}


def _find_subgraph_operators(names: Sequence[str], skeleton: Skeleton) -> set[str]:
    """List the operators that run subgraphs, because they own the kernels of these.

    The nodes of a branch have names that nodes outside the branch have as well.
    """
    return {
        name
        for name in names
        for operand in skeleton.node(name).operands
        if skeleton.node(operand).role is Role.SUBGRAPH
    }


Accusation = tuple[str, float, str]
"""A node's name, a weight from 0 to 1, and the reason."""

_FIRST = "has inputs that agree with eager within the tolerances, and a wrong result"
_WRITES = "writes into the first wrong value"
_BETWEEN = "is between correct values and a wrong one"


def accuse_first_divergence(
    skeleton: Skeleton, differing: Collection[str], agreeing: Collection[str]
) -> Iterator[Accusation]:
    """Accuse the operators of the first differing values, whose operands all agree."""
    first = [
        name
        for name in skeleton.in_order(differing)
        if all(value in agreeing for value in _read_by(skeleton, name))
    ]
    for name in first:
        writers = _writers_into(skeleton, name)
        # Values that share memory are compared in their state after the last write.
        agreeing_kinds = {skeleton.node(value).target for value in agreeing}
        for writer in writers:
            kind = skeleton.node(writer).target
            yield writer, 0.6 if kind in agreeing_kinds else 1.0, _WRITES
        if not writers:
            yield name, 1.0, _FIRST
    if not first:
        for name in _find_operators_between(skeleton, differing, agreeing):
            yield name, 0.6, _BETWEEN


def _read_by(skeleton: Skeleton, value: str) -> Iterator[str]:
    """Yield the operands of a value's producer that are tensors from operators."""
    for operand in skeleton.node(skeleton.producer(value)).operands:
        node = skeleton.node(operand)
        made_by = skeleton.node(skeleton.producer(operand))
        if node.value is not None and made_by.role is Role.OPERATOR:
            yield operand


def _writers_into(skeleton: Skeleton, value: str) -> list[str]:
    """List the in-place operators that write into a value or into a view of it."""
    storage = skeleton.node(value).storage
    if storage is None:
        return []
    nodes = map(skeleton.node, skeleton.operators)
    return [n.name for n in nodes if n.impure and n.storage == storage]


def _find_operators_between(
    skeleton: Skeleton, differing: Collection[str], agreeing: Collection[str]
) -> list[str]:
    """List the ancestors of the first differing value that no agreeing value has."""
    first = skeleton.in_order(differing)[:1]
    return skeleton.in_order(ancestors(skeleton, first) - ancestors(skeleton, agreeing))


_PRINTED = re.compile(r"\[ (before|after)_launch: (\S+) \]")

_CALL = re.compile(r"at::_ops::(\w+)::call|aoti_torch_(?:cpu_|cuda_)?(\w+)")
"""Names of PyTorch's own operators, in the printed form and in the other form."""


def find_reached_launch(kernels: Sequence[str], printed: str) -> int | None:
    """Return the index of the launch at which a run ended; None if it is unknown.

    The output omits some launches, because some kernels print nothing and only one
    branch of two is taken. Loops and further calls start again from the first kernel.
    """
    names = [_plain(kernel) for kernel in kernels]
    place, when, is_known = -1, "", False
    for when, kernel in _PRINTED.findall(printed):
        name = _plain(kernel)
        is_known = name in names
        if when == "before" and is_known:
            place = names.index(name, place + 1 if name in names[place + 1 :] else 0)
    if when == "after":
        place += 1  # the run ended before the next launch
    return place if is_known and place < len(names) else None


_CODE = re.compile(r"guard pages: by the code at (\d+)\b")


def find_faulting_launch(
    kernels: Sequence[str], code: Sequence[Code], text: str
) -> int | None:
    """Return the index of the launch of the kernel whose code faulted.

    Args:
        code: the addresses of the kernels' code.

    Returns:
        None if the kernel is unknown or has several launches.
    """
    if (match := _CODE.search(text)) is None:
        return None
    faulting = (c.kernel for c in code if 0 <= int(match[1]) - c.start < c.size)
    kernel = next(faulting, "")
    return kernels.index(kernel) if kernels.count(kernel) == 1 else None


def ended_inside_launch(printed: str) -> bool:
    """Return whether the last printed launch did not end."""
    launches = _PRINTED.findall(printed)
    return bool(launches) and launches[-1][0] == "before"


def is_call(kernel: str) -> bool:
    """Return whether a launch is a call of one of PyTorch's own operators."""
    return _CALL.fullmatch(kernel) is not None


def _plain(kernel: str) -> str:
    """Return the common name of both forms of a call."""
    found = _CALL.fullmatch(kernel)
    name = (found[1] or found[2]) if found else kernel
    return name.removesuffix("_out") if found else name
