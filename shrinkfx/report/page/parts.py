"""A program as connected boxes: operators, inputs and outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import Names
from shrinkfx.program.listing.printed_program import (
    RETURN,
    InputOrWeight,
    PrintedProgram,
)
from shrinkfx.program.skeleton import Role, Skeleton, TensorType
from shrinkfx.report.issue.plain import strip_default_overload


class Light(StrEnum):
    """How a box is drawn."""

    GONE = "gone"
    KEPT = "kept"
    GUILTY = "guilty"
    VALUE = "value"
    """An input or output, which is no operator."""


@dataclass(frozen=True)
class Part:
    """A box of a drawing.

    Attributes:
        reads: names of the boxes whose values it reads.
        label: the text; ``more`` is the tooltip.
        scope: the components of the path of its module.
        index: of the operator in the program, from 0; -1 for other boxes.
        operators: the number of operators it counts for, subgraphs included.
    """

    name: str
    label: str
    more: str
    reads: tuple[str, ...]
    scope: tuple[str, ...] = ()
    light: Light = Light.GONE
    index: int = -1
    operators: int = 1


OUTPUT = "output"
"""Name of the box of the program's results; no node has this name."""


def parts_of(
    program: Skeleton, remaining: Collection[str], culprits: Collection[str] = ()
) -> list[Part]:
    """List the boxes of an input program in program order; kept operators are lit."""
    found = list[Part]()
    for name in program.inputs:
        more = f"{name}: {_format_type(program.node(name).value)}"
        found.append(Part(name, name, more, (), (), _VALUE))
    # Operators without an effect are not shown.
    live = Candidate.from_skeleton(program).keep
    for index, name in enumerate(program.operators):
        if name not in live:
            continue
        node = program.node(name)
        light = Light.KEPT if name in remaining else Light.GONE
        light = Light.GUILTY if name in culprits and name in remaining else light
        call = f"{name} = {node.target}"
        more = _lines(call, _format_type(node.value), node.scope, node.source)
        reads = _reads(program, node.operands)
        scope = tuple(filter(None, node.scope.split(".")))
        label, number = strip_default_overload(node.target), node.operators
        found.append(Part(name, label, more, reads, scope, light, index, number))
    returned = _reads(program, program.outputs)
    return [*found, Part(OUTPUT, "returns", "the results", returned, (), _VALUE)]


_VALUE = Light.VALUE


def _reads(program: Skeleton, operands: Iterable[str]) -> tuple[str, ...]:
    """Return the operators and inputs that values come from; weights are not drawn."""
    drawn = Role.INPUT, Role.OPERATOR
    made_by = (program.producer(name) for name in operands)
    return tuple(
        dict.fromkeys(name for name in made_by if program.node(name).role in drawn)
    )


def _lines(*texts: str) -> str:
    return "\n".join(filter(None, texts))


def _format_type(value: TensorType | None) -> str:
    return f"{value.dtype}[{', '.join(value.shape)}]" if value else ""


def parts_of_listing(
    listing: PrintedProgram, culprits: Collection[str] = (), names: Names | None = None
) -> list[Part]:
    """List the boxes of a printed program, one per statement.

    Args:
        names: the names that the input program has for the inputs, if different.
    """
    old = names.values[listing.main.name] if names is not None else {}
    found = [_given(item, old.get(item.spelling, "")) for item in listing.given]
    for statement in listing.main.statements:
        reads = tuple(sorted(name.removeprefix("self.") for name in statement.reads))
        code = _spelt(statement.code)
        if statement.name == RETURN:
            label = f"{RETURN} {code}"
            found.append(Part(OUTPUT, label, statement.code, reads, (), _VALUE))
            continue
        light = Light.GUILTY if statement.name in culprits else Light.KEPT
        light = light if statement.is_operator else _VALUE
        more = _lines(statement.code, statement.origin)
        label = f"{statement.name} = {code}" if statement.yields else code
        found.append(Part(statement.name, label, more, reads, (), light))
    return found


def _given(item: InputOrWeight, name: str) -> Part:
    recipe = item.recipe()
    shape = ", ".join(map(str, recipe.shape))
    label = f"{item.spelling}: {recipe.dtype}[{shape}]"
    more = f"{item.kind} {label}"
    if name not in ("", item.spelling):
        more += f"\n{name.removeprefix('self.')} in the input program"
    return Part(item.name, label, more, (), (), _VALUE)


def _spelt(code: str) -> str:
    """Remove the parts that all calls have in common."""
    return code.replace("torch.ops.", "").replace(".default(", "(")


def parts_of_candidate(
    candidate: Candidate, culprits: Collection[str] = ()
) -> list[Part]:
    """List the boxes of a candidate that was not printed."""
    program, inputs = candidate.skeleton, candidate.inputs
    found: list[Part] = []
    for name in inputs:
        label = f"{name}: {_format_type(program.node(name).value)}"
        found.append(Part(name, label, label, (), (), _VALUE))

    def read(operands: Iterable[str], but: str = "") -> tuple[str, ...]:
        values = (v if v in inputs else program.producer(v) for v in operands)
        return tuple(dict.fromkeys(v for v in values if v != but))

    for name in candidate.operators:
        if name in inputs:  # a replaced operator's value, now an input
            continue
        node = program.node(name)
        light = Light.GUILTY if name in culprits else Light.KEPT
        call = f"{name} = {node.target}"
        more = _lines(call, _format_type(node.value), node.source)
        reads = read(candidate.operands(name), name)
        label = strip_default_overload(candidate.target(name))
        found.append(Part(name, label, more, reads, (), light))
    returned = read(candidate.sinks)
    return [*found, Part(OUTPUT, "returns", "the results", returned, (), _VALUE)]
