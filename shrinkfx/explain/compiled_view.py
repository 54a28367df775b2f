"""The compiled-program view of the reduced program, in the names of the program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypedDict

from shrinkfx.explain.kernel_log import KernelLog
from shrinkfx.explain.layouts import real_layout
from shrinkfx.explain.operators import list_operators
from shrinkfx.failure.readers.generated import Code
from shrinkfx.findings.chain import Layout, Limit, SizeSymbol
from shrinkfx.findings.operator_mismatch import NOT_AS_DECLARED
from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Role, Skeleton
from shrinkfx.program.subgraphs import graph_of
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    Carrier,
    GivenInput,
    KernelLaunch,
    KernelText,
)

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class CompiledView:
    """The compiled-program view of a reduced program, with queries by program names."""

    recorded: Anatomy
    candidate: Candidate
    kernel_log: KernelLog = field(default_factory=KernelLog)

    @property
    def skeleton(self) -> Skeleton:
        """The input program from which it was cut."""
        return self.candidate.skeleton

    @property
    def left(self) -> tuple[str, ...]:
        """The operators of the reduced program."""
        return self.candidate.operators

    @cached_property
    def _left(self) -> dict[str, Operator]:
        return {one.name: one for one in list_operators(self.candidate)}

    def operators(self, nodes: Iterable[str]) -> tuple[Operator, ...]:
        """Return the operators that nodes belong to.

        Operators of the reduced program are described as they are now, operators that
        were cut as they were in the input program.
        """
        found = _operators_of(self.skeleton, nodes)
        return tuple(self._left.get(one.name, one) for one in found)

    def find_operators_for(
        self, kernel: KernelText, nodes: Iterable[str]
    ) -> tuple[Operator, ...]:
        """Return the operators for which a kernel, or a line of it, was generated.

        A kernel of a subgraph has the operators of that subgraph, if only one operator
        of the reduced program runs subgraphs. If the node names are ambiguous, that
        operator itself is returned.
        """
        if not kernel.inside:
            return self.operators(nodes)
        running = [name for name in self.left if name in self.skeleton.subgraphs]
        if len(running) != 1:
            return ()
        inner = operators_within(self.skeleton, running[0], {*nodes})
        return inner or self.operators(running)

    def fused(
        self, kernel: KernelText, launch: KernelLaunch | None
    ) -> tuple[Operator, ...]:
        """Return the operators that a kernel computes."""
        if kernel.inside:  # its launch only tells which operator runs it
            return self.find_operators_for(
                kernel, [n for o in kernel.origins for n in o.nodes]
            )
        return self.find_operators_for(kernel, launch.nodes if launch else ())

    def launch_of(self, kernel: str) -> tuple[int, KernelLaunch] | None:
        """Return the launch of a kernel that failed, with its position in the program.

        A run on passing inputs comes before it, and a run in one thread may come after
        it. Each run launches a kernel equally often.
        """
        places = [n for n, x in enumerate(self.recorded.launches) if x.kernel == kernel]
        if not places:
            return None
        if self.kernel_log.cut and len(places) > 1:
            return None
        finding = self.recorded.out_of_bounds
        if finding and finding.made_up:  # timed once, at the first launch
            return places[0], self.recorded.launches[places[0]]
        launched = [name for name, _ in self.kernel_log.launches]
        if self.kernel_log.running is not None:
            launched = launched[: self.kernel_log.running + 1]
        times = finding.launch if finding else launched.count(kernel)
        if not times and len(places) > 1:
            return None
        place = places[(times - 1) % len(places)]
        return place, self.recorded.launches[place]

    def call(self) -> int:
        """Return the number of the program's failing call, from 1; 0 if unknown.

        C++ kernels report their launches, and each call launches a kernel equally
        often.
        """
        log = self.kernel_log
        if log.cut or not log.launches:
            return 0
        last = log.refused[0] if log.refused else ""
        if not last and log.running is not None:
            last = log.launches[log.running][0]
        each = sum(launch.kernel == last for launch in self.recorded.launches)
        times = sum(kernel == last for kernel, _ in log.launches)
        return (times - 1) // each + 1 if each and times else 0

    def map_arguments(self, launch: KernelLaunch, code: Code) -> dict[str, str]:
        """Map a kernel's parameters to the arguments in the wrapper code."""
        return dict(zip(code.parameters(), launch.arguments, strict=False))

    def input(self, code_name: str) -> GivenInput | None:
        """Return the input with a name in the generated code."""
        inputs = self.recorded.inputs
        return next((i for i in inputs if i.code == code_name), None)

    def read(self, name: str) -> str:
        """Return the buffer whose memory a kernel writes over."""
        buffers = {buffer.name: buffer for buffer in self.recorded.buffers}
        known = buffers.get(name)
        return known.instead_of or name if known else name

    def find_producers(self, role: str) -> tuple[Operator, ...]:
        """Return the operators of the reduced program that produced an argument.

        Returns no operators if two of them have the same name.

        Args:
            role: a description of the argument, such as ``result of aten.sin``.
        """
        names = role.removeprefix("result of ").split(", ")
        by_name = {
            name: [o for o in self.operators(self.left) if _is_called(o, name)]
            for name in names
        }
        if any(len(operators) > 1 for operators in by_name.values()):
            return ()
        return tuple(o for operators in by_name.values() for o in operators)

    def find_mismatch(self, among: Set[str] | None) -> tuple[Operator, str] | None:
        """Return an operator with a fake-kernel mismatch, and a sentence about it.

        Args:
            among: the names of the operators to consider; None for all.
        """
        for mismatch in self.recorded.untrue:
            for operator in self.operators([mismatch.within]):
                if among is None or mismatch.within in among:
                    sentence = f"{operator} {NOT_AS_DECLARED}: {mismatch.text}."
                    return operator, sentence
        return None

    def layout(self, name: str) -> Layout | None:
        """Return the layout of an input or a buffer by its name in the wrapper code."""
        if (entry := self.input(name)) is not None:
            return self.layout_of(entry)
        buffer = next((b for b in self.recorded.buffers if b.name == name), None)
        if buffer is None:
            return None
        real = real_layout(self.recorded, buffer)
        return Layout(
            name=name,
            role="buffer",
            shape=buffer.shape,
            stride=buffer.stride,
            dtype=buffer.dtype,
            real_shape=real.shape if real else (),
            real_stride=real.stride if real else (),
            made_by=self.result(name) or self.computed(name),
            made_in=self.writer(name),
        )

    def layout_of(self, entry: GivenInput) -> Layout:
        """Return the layout of an input.

        An input that stands for a cut part of the program gets the role ``value``, with
        the operator that produced it in the input program.
        """
        made_by = _operators_of(self.skeleton, [entry.name])
        return Layout(
            name=entry.target or entry.name,
            role="value" if made_by else entry.role,
            shape=entry.shape,
            stride=entry.stride,
            dtype=entry.dtype,
            device=entry.device,
            real_shape=entry.real_shape,
            real_stride=entry.real_stride,
            made_by=made_by,
            state=self._state(entry.name),
        )

    def _state(self, name: str) -> str:
        """Return the values that earlier calls have written into a buffer, in words."""
        for state in self.recorded.states:
            if state.input == name:
                by = ", ".join(map(str, self.operators([state.written])))
                span = f"{state.least}..{state.most} in eager before call {state.call}"
                return f"{span}, written by {by} in the calls before" if by else span
        return ""

    def result(self, buffer: str) -> tuple[Operator, ...]:
        """Return the operator whose result a buffer is; none for intermediates."""
        found = next((b for b in self.recorded.buffers if b.name == buffer), None)
        return self.operators([found.result]) if found and found.result else ()

    def computed(self, buffer: str) -> tuple[Operator, ...]:
        """Return all operators that compute a buffer."""
        found = next((b for b in self.recorded.buffers if b.name == buffer), None)
        return self.operators(found.nodes) if found else ()

    def writer(self, buffer: str) -> str:
        """Return the kernel that writes a buffer, or ''."""
        for launch in self.recorded.launches:
            kernel = self.recorded.kernel(launch.kernel)
            if kernel is None:
                continue
            passed = self.map_arguments(launch, Code(kernel.text))
            if any(n == buffer and "out_ptr" in p for p, n in passed.items()):
                return launch.kernel
        return ""

    @cached_property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest value of each integer node in eager."""
        return {r.node: (r.least, r.most) for r in self.recorded.eager}

    def limit(self, code: str, passed: dict[str, str], value: int | None) -> Limit:
        """Trace a size back to the dims of inputs that carry it."""
        words = [word for word in _WORD.findall(code) if word in passed]
        expression = ", ".join(passed[word] for word in words)
        names = [*_WORD.findall(expression), *_WORD.findall(code)]
        return Limit(
            code=re.sub(r"(?<=\d)L\b", "", code),
            passed=expression,
            value=value if value is not None else _number(code),
            symbols=tuple(self.symbols(dict.fromkeys(names))),
        )

    def symbols(self, names: Iterable[str]) -> list[SizeSymbol]:
        """Return the size symbols, each with an input and a dim that carry it."""
        known = {symbol.name: symbol for symbol in self.recorded.symbols}
        found = []
        for name in names:
            if (symbol := known.get(name)) is None:
                continue
            in_order = sorted(symbol.carriers, key=lambda c: c.size != name)
            carrier = in_order[0] if in_order else None
            found.append(
                SizeSymbol(
                    name=name,
                    value=symbol.value,
                    least=symbol.least,
                    most=symbol.most,
                    input=carrier.input if carrier else "",
                    dim=carrier.dim if carrier else None,
                    size=carrier.size if carrier else "",
                    guards=symbol.guards,
                    **trace_to_input(self.skeleton, carrier),
                )
            )
        return found


def _is_called(operator: Operator, name: str) -> bool:
    return name in (operator.operator, operator.operator.rpartition(".")[0])


def _operators_of(skeleton: Skeleton, nodes: Iterable[str]) -> tuple[Operator, ...]:
    """Return operators of the input program by their names or their values' names."""
    producers = [skeleton.producer(name) for name in nodes if name in skeleton]
    found = (skeleton.node(name) for name in dict.fromkeys(producers))
    return tuple(
        Operator(node.name, node.target, node.source, node.scope)
        for node in found
        if node.role is Role.OPERATOR
    )


def _number(code: str) -> int | None:
    found = re.fullmatch(r"(-?\d+)L?", code.strip())
    return int(found[1]) if found else None


class CarryingInput(TypedDict, total=False):
    """The input of the input program that carries a size: fields of ``SizeSymbol``."""

    whole_input: str
    whole_dim: int


def trace_to_input(skeleton: Skeleton, carrier: Carrier | None) -> CarryingInput:
    """Trace the size of a cut value to an input; empty if it is an input's own size."""
    if carrier is None or carrier.input not in skeleton:
        return {}
    cut = skeleton.node(carrier.input)
    if cut.role is not Role.OPERATOR or cut.value is None:
        return {}
    size = cut.value.shape[carrier.dim]
    for name in skeleton.inputs:
        value = skeleton.node(name).value
        if value is not None and not size.isdigit() and size in value.shape:
            return {"whole_input": name, "whole_dim": value.shape.index(size)}
    return {}


def operators_within(
    skeleton: Skeleton, carrier: str, nodes: Set[str]
) -> tuple[Operator, ...]:
    """Return the operators of another operator's subgraphs, by Inductor's node names.

    Returns none if two of them have the same name.
    """
    graphs, outer = skeleton.subgraphs[carrier], skeleton.node(carrier)
    inner = [skeleton.node(n) for n in skeleton.graph if graph_of(n) in graphs]
    called = [n for n in inner if n.operators and n.name.rpartition(".")[2] in nodes]
    if len({n.name.rpartition(".")[2] for n in called}) < len(called):
        return ()
    return tuple(
        Operator(n.name, n.target, n.source or outer.source, n.scope or outer.scope)
        for n in called
    )
