"""Parse the output of Inductor's intermediate value printer.

AOTInductor's code prints a header in brackets, and Inductor's Python wrapper one that
begins with ``inductor:``. A line for each fact follows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from shrinkfx.report.explanation.guide import Value

_LAUNCH = re.compile(r"\[ (before|after)_launch: (\S+) \]")
_HEADER = re.compile(
    r"^(?:\[ {1,2}|inductor: )"
    r"(?:(?P<when>before|after)_launch - (?P<kernel>\S+)|aoti_model_inputs)"
    r" - (?P<argument>.+?)(?:: (?P<number>\S+))?(?: {1,2}\]:?)?$",
    re.MULTILINE,
)
_FACT = re.compile(r"^([A-Z][a-z]+(?: [a-z]+)*): +(.*?) *$", re.MULTILINE)
_BUFFER = "buf"
_DTYPES = {
    "BFloat16": "bfloat16",
    "Half": "float16",
    "double": "float64",
    "float": "float32",
    "int": "int32",
    "long int": "int64",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
}
"""The names of dtypes in C++."""


@dataclass(frozen=True)
class PrintedValue:
    """A value at one moment.

    Attributes:
        when: ``before`` or ``after`` a launch, or '' for an input of the program.
    """

    when: str
    value: Value


def parse_values(text: str) -> list[PrintedValue]:
    """Parse values in the order in which they were printed."""
    headers = list(_HEADER.finditer(text))
    starts = [header.start() for header in headers]
    return [
        PrintedValue(header["when"] or "", _value(header, text[header.end() : end]))
        for header, end in zip(headers, [*starts, len(text)][1:], strict=True)
    ]


def _value(header: re.Match[str], text: str) -> Value:
    facts: dict[str, str] = {}
    for name, fact in _FACT.findall(text):
        facts.setdefault(name.removesuffix(" value"), fact)
    dtype = facts.get("Dtype", "").removeprefix("torch.").removeprefix("c10::")
    size = re.findall(r"\d+", facts.get("Size", "").partition("[")[2])
    return Value(
        kernel=header["kernel"] or "",
        argument=header["argument"],
        dtype=_DTYPES.get(dtype, dtype),
        shape=tuple(map(int, size)),
        elements=int(facts.get("Number of elements", "0")),
        minimum=facts.get("Min", ""),
        maximum=facts.get("Max", ""),
        mean=facts.get("Mean", ""),
        number=header["number"] or facts.get("Value", ""),
    )


def list_kernel_inputs(
    text: str, taken: Callable[[str], Set[str]] = lambda _: frozenset()
) -> Iterator[Value]:
    """Yield the inputs of kernels at their last launches.

    Buffers that no kernel has written are omitted, because they are memory for results,
    and their values are left over from earlier use.

    Args:
        taken: returns the buffers of a kernel that are known to be no results.
    """
    last: dict[str, dict[str, Value]] = {}
    written: set[str] = set()
    launch, first = "", ""
    for one in parse_values(text):
        value, before = one.value, launch
        launch = value.kernel if one.when == "before" else ""
        if one.when == "after":
            written.add(value.argument)
        if not launch:
            continue
        first = first or launch
        if launch != before:
            last[launch] = {}
            if launch == first:  # maybe another call, with new memory
                written.clear()
        if _is_given(value, written | taken(launch)):
            last[launch][value.argument] = value
    for values in last.values():
        yield from values.values()


def _is_given(value: Value, written: Set[str]) -> bool:
    is_literal = value.argument == value.number
    is_known = value.argument in written or not value.argument.startswith(_BUFFER)
    return is_known and not is_literal


def parse_launches(text: str) -> list[tuple[str, str]]:
    """Return the order of launches: ``("before", "cpp_fused_add_0")``."""
    return [(found[1], found[2]) for found in _LAUNCH.finditer(text)]
