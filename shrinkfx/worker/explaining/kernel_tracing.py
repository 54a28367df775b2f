"""Instrument C++ kernels to report their arguments and the indices they reject.

Each function is changed before it is compiled, within its lines, so that lines keep
their numbers. It reports to a file, because the process may die at the next line. ::

    launch cpp_fused_embedding_0 in_ptr0=0x7f.. ks0=12
    refused cpp_fused_embedding_0 17 tmp4=15 12=12 tmp0=3
    fault 0x7f... cpp_fused_embedding_0 17
    done cpp_fused_embedding_0
    threw cpp_fused_embedding_0
    cut

``cut`` stands for the remaining launches of a program that has very many.
"""

from __future__ import annotations

import re
from pathlib import Path

from shrinkfx.failure.readers.generated import Code, IndexCheck

TRACE_FILE_VARIABLE = "SHRINKFX_TELLING"
"""The environment variable that names the file."""

ADDED_LINE_MARK = "// shrinkfx"
"""The end of each line that is added before a kernel."""

_FUNCTION = re.compile(
    r'extern "C"\s+(?:\w+ +)*?void\s+(?P<kernel>\w+)\s*\((?P<given>[^)]*)\)\s*\{'
)
_STATEMENT = re.compile(
    r"^\s*(?:auto tmp\d+ = (?!\[)|tmp\w*[.\[ ]|(?:in_)?out_ptr\d+\[|atomic_add).*;$"
)
_NAME = re.compile(r"^_?tmp\w+$")


def instrument_kernel(text: str, *, lines_too: bool = False) -> str:
    """Instrument a kernel; one of another form, such as a template's, is not changed.

    Args:
        lines_too: also let each line record that it begins, so that a fault can report
            its line. This keeps the C++ compiler from joining lines.
    """
    found = _FUNCTION.search(text)
    if found is None:
        return text
    code, lines = Code(text), text.split("\n")
    for check in code.checks():
        report = _write_check_report(code, check, f"{found['kernel']} {check.line}")
        before, macro, after = lines[check.line].partition("AOTI_TORCH_CHECK(")
        lines[check.line] = f"{before}{report}{macro}{after}" if macro else before
    if lines_too:
        first = text[: found.end()].count("\n") + 1
        rest = enumerate(lines[first:], first)
        lines[first:] = [_note_line(found["kernel"], n, line) for n, line in rest]
    # The text above the body has not changed.
    above, head = text[: found.start()], text[found.start() : found.end()]
    body = "\n".join(lines)[found.end() :]
    return f"{above}{_write_helpers()}{head}{_write_launch_report(found)}{body}"


def _write_launch_report(found: re.Match[str]) -> str:
    """Write the statements that report the arguments of a launch."""
    parameters = _list_parameters(found["given"])
    if not parameters:
        return ""
    names = ", ".join(f'"{name}"' for name, _ in parameters)
    values = "".join(f", {value}" for _, value in parameters)
    launch = f'shrinkfx_launch("{found["kernel"]}", shrinkfx_names{values})'
    return (
        f"static const char* const shrinkfx_names[] = {{{names}}}; "
        f"const shrinkfx::Launch {launch};"
    )


def _note_line(kernel: str, number: int, line: str) -> str:
    """Let a line that is a complete statement record that it begins."""
    begin = len(line) - len(line.lstrip())
    if not _STATEMENT.match(line):
        return line
    return f'{line[:begin]}shrinkfx::at("{kernel}", {number}); {line[begin:]}'


def _write_helpers() -> str:
    """Write the helpers that all kernels of a file share, with an include guard."""
    helpers = Path(__file__).with_suffix(".h").read_text(encoding="utf-8")
    lines = f"#ifndef SHRINKFX_TELLS\n#define SHRINKFX_TELLS\n{helpers}#endif"
    return "".join(f"{line} {ADDED_LINE_MARK}\n" for line in lines.split("\n"))


def _write_check_report(code: Code, check: IndexCheck, where: str) -> str:
    """Write the call that reports a check: its index, its limit and their history."""
    steps = code.history(check.index, check.line)
    names = [check.index, check.upper or check.lower]
    names += [step.name for step in steps if _is_visible(code, step.name, check.line)]
    names = list(dict.fromkeys(name for name in names if name))
    holds = check.holds.removesuffix(".all_masked()")
    listed = ", ".join(f'"{name.replace(" ", "")}"' for name in names)
    return (
        f"{{ static const char* const names[] = {{{listed}}}; "
        f'shrinkfx::check("{where}", {holds}, names, {", ".join(names)}); }} '
    )


def _is_visible(code: Code, name: str, line: int) -> bool:
    """Return whether a name is that of a value in scope, and not that of a lambda."""
    value = code.definition(name, line)
    return bool(value and _NAME.match(name) and not value.expression.startswith("[&]"))


def _list_parameters(parameters: str) -> list[tuple[str, str]]:
    """List a function's parameters, with the expressions that print their values."""
    pairs = []
    for entry in parameters.split(","):
        if words := re.findall(r"\w+", entry):
            name = words[-1]
            pointer = f"shrinkfx::text(static_cast<const void*>({name}))"
            number = f"std::to_string({name})"
            pairs.append((name, pointer if "*" in entry else number))
    return pairs
