"""From what a failing run has left behind to the nodes that it may come from."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from shrinkfx.failure.divergence import Accusation, divergence
from shrinkfx.failure.launches import reached, strayed
from shrinkfx.failure.signature import MEMORY, Kind, Signature, Stage
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.protocol.files import Code, Launch, Traces


@dataclass(frozen=True)
class Suspect:
    """An operator that the failure may come from.

    Attributes:
        weight: above 0 and at most 1, which is as good as sure.
        why: what points at it.
        operator: what it calls.
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
    """What points at nodes of the program that is searched, by their names there.

    Attributes:
        launches: the compiled program's kernels, in the order of their launches.
        text: what the run has said.
        raised_at: nodes that the compiler was at work on, the innermost call's first.
        is_own: code of a user's own has put the innermost one there, and says of what.
        kernel: the one that it was at work on, or ''.
        launch: which of the launches of the kernel that is named, from 1; 0: unknown.
        printed: what a run wrote that prints each launch before and after.
        stopped: the node at which eager itself fails, or ''.
        mismatched: operators whose results are not what their fake kernels say.
        code: where the machine code of kernels lay.
        differing: values that are not eager's.
        agreeing: values that are.
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
    is_own: bool = False
    differing: tuple[str, ...] = ()
    agreeing: tuple[str, ...] = ()

    @classmethod
    def of(cls, traces: Traces) -> Self:
        """Take what the worker has left."""
        said = traces.message, traces.raised_at, traces.kernel, traces.launch
        return cls(traces.launches, *said, code=traces.code, is_own=traces.is_own)


@dataclass(frozen=True)
class Tie:
    """Suspects of which none is surer than another: their order says nothing.

    Attributes:
        rank: of all of them; one more than there are surer suspects.
    """

    rank: int
    members: tuple[Suspect, ...]

    def __str__(self) -> str:
        first, *others = self.members
        if not others:
            return f"suspect: {first}"
        why = f", each of which {first.why}"
        if {member.why for member in others} != {first.why}:
            why = ", all equally likely"
        elif first.why.startswith(_IN_KERNEL):
            why = f" of kernel {first.why.removeprefix(_IN_KERNEL)}"
        # A higher-order operator has no overload: ``cond``.
        names = (m.operator.rpartition(".")[0] or m.operator for m in self.members)
        called = dict.fromkeys(names)
        shown = [*called][:_SHOWN] + ["..."] * (len(called) > _SHOWN)
        return f"suspects: {len(self.members)} operators{why}: {', '.join(shown)}"


def ties(found: Sequence[Suspect]) -> list[Tie]:
    """Put suspects of one weight together, the surest first."""
    told: list[Tie] = []
    for _, members in itertools.groupby(found, key=lambda suspect: suspect.weight):
        rank = 1 + sum(len(tie.members) for tie in told)
        told.append(Tie(rank, tuple(members)))
    return told


_SHOWN = 3
"""Operators of a tie that are named."""

_IN_KERNEL = "in kernel "


def suspects(
    evidence: Evidence, skeleton: Skeleton, failure: Signature
) -> tuple[Suspect, ...]:
    """Say which operators the failure may come from, the surest first."""
    found: dict[str, Suspect] = {}
    for name, weight, why in _accusations(evidence, skeleton, failure):
        node = skeleton.node(skeleton.producer(name)) if name in skeleton else None
        if node is None or node.role is not Role.OPERATOR:
            continue
        known = found.get(node.name)
        if known is None or known.weight < weight:
            about = (node.target, node.source)
            found[node.name] = Suspect(node.name, round(weight, 3), why, *about)
    in_order = [found[name] for name in skeleton.in_order(found)]
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
        # What the compiler cannot build has nothing to do with data.
        sure = 0.3 if failure.stage is Stage.COMPILE else 1.0
        yield evidence.stopped, sure, "fails in eager too"
    if evidence.differing:
        yield from divergence(skeleton, evidence.differing, evidence.agreeing)
    for weight, names in zip((1.0, 0.5), evidence.raised_at, strict=False):
        for name in names:
            yield name, weight, _REWRITTEN if evidence.is_own else _AT_WORK
    yield from _of_words(evidence, skeleton)
    if number := _named(evidence):
        sure = 1.0 if _USERS in evidence.text else 0.9
        yield from _of_kernel(evidence, number, skeleton, failure, sure)
    elif failure.stage is Stage.RUN and (number := _strayed(evidence)):
        yield from _of_kernel(evidence, number, skeleton, failure, _FAULTED)
    elif failure.stage is Stage.RUN and (number := _reached(evidence)):
        # A corrupt heap shows later than where it was corrupted.
        sure = 0.4 if failure.kind is Kind.IMA else _FAULTED
        yield from _of_kernel(evidence, number, skeleton, failure, sure)


def _weight_of_mismatch(failure: Signature) -> float:
    if failure.kind is Kind.IMA or failure.detail == MEMORY:
        return 1.0
    return 0.3 if failure.stage is Stage.COMPILE else 0.8


_FAULTED = 0.8
"""For what a kernel computes in which the process has died."""

_AT_WORK = "was being compiled"
_REWRITTEN = "was rewritten by code other than PyTorch's"
_RESULT_OF = re.compile(
    r"\(result of ([^()]+)\)|^Error in op: (?:torch\.ops\.)?(\S+)", re.MULTILINE
)
_ATEN_FRAME = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_TARGET = re.compile(r"^\s*target: (\S+)", re.MULTILINE)


def _of_words(evidence: Evidence, skeleton: Skeleton) -> Iterator[Accusation]:
    """Accuse all operators that a message calls by their kind."""
    text = evidence.text
    called = dict.fromkeys(_ATEN_FRAME.findall(text), "raises")
    for word in _TARGET.findall(text):
        called[word] = _AT_WORK
    for role, layout in _RESULT_OF.findall(text):
        words = (role or layout).split(", ")
        if layout or not words[0].startswith("aten."):  # else a kernel's, that ran well
            called |= dict.fromkeys(words, "produced the inputs of the kernel")
    for name in skeleton.operators:
        target = skeleton.node(name).target
        namespace, _, rest = target.partition(".")
        packet = rest.rpartition(".")[0]
        for word in (packet, f"{namespace}.{packet}", target):
            if word in called and packet:
                yield name, 0.7 if namespace == "aten" else 0.95, called[word]


def _named(evidence: Evidence) -> list[int]:
    """Find the launches of the kernel that the failure names first.

    Several operators may launch one: it is told which launch it was, or all are.
    """
    kernels = {launch.kernel for launch in evidence.launches}
    said = f"{evidence.kernel}\n{evidence.text}"
    words = [w for w in re.findall(r"\w[\w.]*", said) if w in kernels]
    if not words:
        # A compiler knows a user's kernel by the name without Inductor's number.
        users = [k for k in kernels if not _INDUCTORS.search(k)]
        stems = {re.sub(r"_\d+$", "", k): k for k in users}
        words = [stems[w] for w in re.findall(r"\w+", said) if w in stems]
    places = enumerate(evidence.launches)
    found = [n for n, launch in places if words and launch.kernel == words[0]]
    told = found[evidence.launch - 1 : evidence.launch] if evidence.launch else []
    return told or found


_INDUCTORS = re.compile(r"(?:^|_)(?:cpp|cuda|triton_[a-z]{3})_fused_")
"""What Inductor calls its own kernels. A user's may be called ``norm_fused``."""

_USERS = "(user kernel "
"""What a finding of the interpreter says behind the name of such a kernel."""


def _reached(evidence: Evidence) -> list[int]:
    place = reached([x.kernel for x in evidence.launches], evidence.printed)
    return [] if place is None else [place]


def _strayed(evidence: Evidence) -> list[int]:
    kernels = [launch.kernel for launch in evidence.launches]
    place = strayed(kernels, evidence.code, evidence.text)
    return [] if place is None else [place]


def _of_kernel(
    evidence: Evidence,
    accused: Sequence[int],
    skeleton: Skeleton,
    failure: Signature,
    sure: float,
) -> Iterator[Accusation]:
    """Accuse what a kernel computes: least what others have computed well.

    A user's kernel is that of its custom operator, whatever else bears its name.
    """
    launches = evidence.launches
    kernel = launches[accused[0]].kernel
    names = [name for place in accused for name in launches[place].nodes]
    names = [name for name in dict.fromkeys(names) if name in skeleton]
    own = _owners(kernel, names, evidence.text, skeleton)
    if failure.stage is Stage.COMPILE:
        well = [launch.nodes for launch in launches if launch.kernel != kernel]
    else:
        well = [launch.nodes for launch in launches[: accused[0]]]
    branching = _branching(names, skeleton)  # of several kernels, some are well
    cleared = {name for nodes in well for name in nodes} - own - branching
    kinds = {skeleton.node(name).target for name in cleared if name in skeleton}
    kept_out = set(names) - (own or branching or {*names})
    for name in names:
        weight = sure * (0.3 if name in cleared or name in kept_out else 1.0)
        weight *= 0.6 if skeleton.node(name).target in kinds else 1.0
        if failure.detail == _BOUNDS and not _indexes(skeleton, name):
            weight *= 0.5
        yield name, sure if name in own else weight, f"{_IN_KERNEL}{kernel}"


_BOUNDS = "index out of bounds"
_INDEXING = re.compile(
    r"index|embedding|gather|scatter|take|roll|flip|slice|select|strided|pad|pool"
    r"|unfold|upsample|grid|sort|topk|searchsorted|bucketize|put|one_hot|diagonal"
)


def _indexes(skeleton: Skeleton, name: str) -> bool:
    """Tell whether an operator computes an index; of PyTorch's others none does."""
    target = skeleton.node(name).target
    return not target.startswith("aten.") or bool(_INDEXING.search(target))


def _owners(
    kernel: str, names: Sequence[str], text: str, skeleton: Skeleton
) -> set[str]:
    """Find the custom operators that a user's kernel is of; none of Inductor's own.

    Inductor names their neighbours with it, and them with kernels of these.
    """
    if _INDUCTORS.search(kernel) and f"in {kernel} {_USERS}" not in text:
        return set()
    return {n for n in names if not skeleton.node(n).target.startswith("aten.")}


def _branching(names: Sequence[str], skeleton: Skeleton) -> set[str]:
    """List those that run graphs of their own: a kernel of these is theirs.

    Nodes of a branch bear names that others outside of it bear as well.
    """
    return {
        name
        for name in names
        for operand in skeleton.node(name).operands
        if skeleton.node(operand).role is Role.SUBGRAPH
    }
