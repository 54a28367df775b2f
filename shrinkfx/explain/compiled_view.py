"""The compiled-program view of the reduced program, in the names of the program.

It contains the log that instrumented C++ kernels write as they run, and compares the
real layout of an argument with its declared layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from shrinkfx.explain.reduced_program import find_dependencies, list_operators
from shrinkfx.failure.readers.generated import Code
from shrinkfx.findings.chain import Chain, Layout, Limit, SizeSymbol
from shrinkfx.findings.code import CodeLine, find_quoted_lines
from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.skeleton import Role, Skeleton, graph_of
from shrinkfx.protocol.compiled_program_view import (
    Anatomy,
    GivenInput,
    KernelLaunch,
    KernelText,
    MadeBuffer,
)


@dataclass(frozen=True)
class KernelLog:
    """The log of the C++ kernels in one run.

    Attributes:
        launches: each launch: its kernel, and its arguments by parameter.
        running: the index of the launch that has not ended, or has thrown; None if
            there is none.
        refused: kernel, line and values of the first index that was rejected.
        fault: the address at which the process died, or ''.
        cut: whether there were too many launches to record all of them.
        at: kernel and line of the statement that was running; None if it was not
            recorded.
    """

    launches: tuple[tuple[str, dict[str, str]], ...] = ()
    running: int | None = None
    refused: tuple[str, int, dict[str, int]] | None = None
    fault: str = ""
    at: tuple[str, int] | None = None
    cut: bool = False

    @classmethod
    def read(cls, text: str) -> KernelLog:
        """Parse the log; its last line may be incomplete."""
        launches: list[tuple[str, dict[str, str]]] = []
        running, refused, fault, at = None, None, "", None
        lines = text.split("\n")
        for line in lines:
            match line.split():
                case ["launch", kernel, *pairs]:
                    running = len(launches)
                    launches.append((kernel, _read_pairs(pairs)))
                case ["done", *_]:
                    running = None
                case ["refused", kernel, number, *pairs] if refused is None:
                    if number.isdigit():
                        values = _numbers(_read_pairs(pairs))
                        refused = kernel, int(number), values
                case ["fault", fault, *place]:
                    kernel, number = (*place, "", "")[:2]
                    at = (kernel, int(number)) if number.isdigit() else None
                    break
        return cls(tuple(launches), running, refused, fault, at, "cut" in lines)


def _read_pairs(words: Iterable[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)


def _numbers(pairs: dict[str, str]) -> dict[str, int]:
    return {n: int(v) for n, v in pairs.items() if re.fullmatch(r"-?\d+", v)}


_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class FailingKernel:
    """A kernel that failed.

    Attributes:
        kernel: the kernel as it was generated.
        code: its text, as it was run.
        launch: the launch that failed; None if it is not known.
        passed: the wrapper's arguments, by parameter.
        chain: what is known without the failing line.
    """

    kernel: KernelText
    code: Code
    launch: KernelLaunch | None
    passed: dict[str, str]
    chain: Chain


def map_arguments(launch: KernelLaunch, kernel: KernelText) -> dict[str, str]:
    """Map a kernel's parameters to the arguments in the wrapper code."""
    parameters = Code(kernel.text).parameters()
    return dict(zip(parameters, launch.arguments, strict=False))


@dataclass(frozen=True)
class CompiledView:
    """The compiled-program view of a reduced program, with queries by program names.

    Attributes:
        eager_fails: eager fails on the input program as well.
        guarded: inaccessible memory surrounded each tensor.
    """

    recorded: Anatomy
    candidate: Candidate
    kernel_log: KernelLog = field(default_factory=KernelLog)
    eager_fails: bool = False
    guarded: bool = False

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
            nodes = [node for origin in kernel.origins for node in origin.nodes]
            return self.find_operators_for(kernel, nodes)
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

    def locate(self, name: str, text: str = "") -> FailingKernel:
        """Return a failing kernel, with the launch that failed if that is known.

        Args:
            text: the kernel as it was run, if that differs from what was generated.
        """
        kernel = self.recorded.kernel(name) or KernelText(name, text)
        place, launch = self.launch_of(name) or (-1, None)
        fused = self.fused(kernel, launch)
        chain = Chain(
            kernel=name,
            launch=place + 1,
            launches=len(self.recorded.launches),
            fused=fused,
            culprits=fused,
        )
        passed = map_arguments(launch, kernel) if launch else {}
        return FailingKernel(kernel, Code(text or kernel.text), launch, passed, chain)

    def input(self, code_name: str) -> GivenInput | None:
        """Return the input with a name in the generated code."""
        inputs = self.recorded.inputs
        return next((i for i in inputs if i.code == code_name), None)

    def buffer(self, name: str) -> MadeBuffer | None:
        """Return the buffer with a name in the wrapper code."""
        return next((b for b in self.recorded.buffers if b.name == name), None)

    def read(self, name: str) -> str:
        """Return the buffer whose memory a kernel writes over."""
        buffer = self.buffer(name)
        return buffer.instead_of or name if buffer else name

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

    def layout(self, name: str) -> Layout | None:
        """Return the layout of an input or a buffer by its name in the wrapper code."""
        if (entry := self.input(name)) is not None:
            return self.layout_of(entry)
        if (buffer := self.buffer(name)) is None:
            return None
        made_by = self.result(name) or self.computed(name)
        facts = buffer.shape, buffer.stride, buffer.dtype
        return Layout(
            name, "buffer", *facts, made_by=made_by, made_in=self.writer(name)
        )

    def layout_of(self, entry: GivenInput) -> Layout:
        """Return the layout of an input.

        An input that stands for a cut part of the program gets the role ``value``, with
        the operator that produced it in the input program.
        """
        made_by = _operators_of(self.skeleton, [entry.name])
        name, role = entry.target or entry.name, "value" if made_by else entry.role
        declared = entry.shape, entry.stride, entry.dtype, entry.device
        actual = entry.real_shape, entry.real_stride
        return Layout(name, role, *declared, *actual, made_by)

    def result(self, buffer: str) -> tuple[Operator, ...]:
        """Return the operator whose result a buffer is; none for intermediates."""
        found = self.buffer(buffer)
        return self.operators([found.result]) if found and found.result else ()

    def computed(self, buffer: str) -> tuple[Operator, ...]:
        """Return all operators that compute a buffer."""
        found = self.buffer(buffer)
        return self.operators(found.nodes) if found else ()

    def writer(self, buffer: str) -> str:
        """Return the kernel that writes a buffer, or ''."""
        for launch in self.recorded.launches:
            kernel = self.recorded.kernel(launch.kernel)
            if kernel is None:
                continue
            passed = map_arguments(launch, kernel)
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
        return [
            trace_to_input(self.skeleton, known[name])
            for name in names
            if name in known
        ]


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


def trace_to_input(skeleton: Skeleton, symbol: SizeSymbol) -> SizeSymbol:
    """Trace the size of a cut value to an input of the input program and its dim."""
    cut = skeleton.node(symbol.input) if symbol.input in skeleton else None
    if cut is None or cut.role is not Role.OPERATOR or not cut.value:
        return symbol
    size = cut.value.shape[symbol.dim or 0]
    for name in skeleton.inputs:
        value = skeleton.node(name).value
        if value is not None and not size.isdigit() and size in value.shape:
            dim = value.shape.index(size)
            return replace(symbol, whole_input=name, whole_dim=dim)
    return symbol


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


# Quote lines of generated code, and find the operators they were generated for.


def quote_lines(code: Code, line: int) -> tuple[CodeLine, ...]:
    """Quote the lines around one, numbered from the kernel's first line."""
    head = code.head()
    return tuple(
        CodeLine(number - head + 1, code.lines[number], number == line)
        for number in code.around(line)
    )


def renumber_quotes(found: Explanation, files: Mapping[str, str]) -> Explanation:
    """Renumber quoted lines as in the published files, and add the files' names.

    Args:
        files: the text of generated code, by path in the run's folder.
    """
    chain, stop, cause = found.chain, found.compile_error, found.cause
    if chain is not None and (
        placed := find_quoted_lines(chain.code, chain.kernel, files)
    ):
        chain = replace(chain, file=placed[0], code=placed[1])
    if stop is not None and (
        placed := find_quoted_lines(stop.code, stop.kernel, files)
    ):
        quoted = replace(stop, file=placed[0], code=placed[1])
        new = dict(zip(stop.cause, quoted.cause, strict=True))
        stop, cause = quoted, tuple(new.get(text, text) for text in cause)
    return replace(found, chain=chain, compile_error=stop, cause=cause)


def find_line_operators(
    view: CompiledView, failing: FailingKernel, line: int
) -> tuple[Operator, ...]:
    """Return the operators that a line was generated for; none if it is not tracked."""
    kernel, code = failing.kernel, failing.code
    check = next((check for check in code.checks() if check.line == line), None)
    if check is not None:
        message = f'bounds: {check.text}"'
        checks = [o for o in kernel.origins if not o.variable]
        found = [o for o in checks if message in o.expression]
    elif (at := code.statement(line)) is not None:
        pair = at.name, at.expression
        found = [o for o in kernel.origins if (o.variable, o.expression) == pair]
    else:
        found = []
    return view.find_operators_for(kernel, found[0].nodes) if found else ()


def with_views(
    view: CompiledView, fused: tuple[Operator, ...], by: tuple[Operator, ...]
) -> tuple[Operator, ...]:
    """Add the views that an operator reads through: they determine its addresses."""
    read = {n for o in by for n in find_dependencies(view.candidate, [o.name])}
    views = [
        alias
        for alias in fused
        if alias.name in read and alias not in by
        if view.skeleton.node(alias.name).storage is not None
        if alias.name not in view.candidate.replace
    ]
    return (*views, *by)
