"""Remove paths, host names and lines of the user's model from texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from shrinkfx.findings.operators import Operator
from shrinkfx.findings.record import Explanation

_BEGINS = r"(?:(?<![\w.])|(?<=-[IL]))"
"""The context before a path: no name, or a compiler option."""

_INSTALLED = re.compile(_BEGINS + r"/[^\s\"':,;()]*?(?:site|dist)-packages/")
_PYTHONS = re.compile(_BEGINS + r"/[^\s\"':,;()]*?/lib(?:64)?/python[\d.]+/")
_FOLDERS = re.compile(r"(?:file:/+|(?:(?<![\w./])|(?<=-[IL]))~?/)(?:[^\s/\"':,;()]+/)+")
_ORIGIN = re.compile(r", dim \d+ of \S+ in the input program")


def strip_paths(text: str, hosts: Iterable[str] = ()) -> str:
    """Reduce paths to file names, and those below ``site-packages`` to relative paths.

    Args:
        hosts: names of this machine, which become ``HOST``.
    """
    for folders in (_INSTALLED, _PYTHONS, _FOLDERS):
        text = folders.sub("", text)
    for name in sorted({host for host in hosts if len(host) > 1}, key=len)[::-1]:
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(?![\w-])", "HOST", text)
    return text


PLACEHOLDER_NAME = "MODEL.pt2"
"""Replaces the program's name in a command."""

_CALL = re.compile(r"shrinkfx\.minify\((?:module|program)(?:, \w+=\.\.\.)*\)")


def strip_values(command: str) -> str:
    """Keep the options of a run's command line, and remove all values that users chose.

    shrinkfx serve.pt2 --out runs/a --anonymous
    becomes    shrinkfx MODEL.pt2 --out ... --anonymous
    """
    if _CALL.fullmatch(command):
        return command
    if not command.startswith("shrinkfx "):
        return "shrinkfx.minify(...)"
    typed, separator, _ = command.partition(" -- ")
    shown = ["shrinkfx"]
    for word in typed.split()[1:]:
        option = re.match(r"--?[a-z][a-z-]*(?=$|=)", word)
        if option:
            shown.append(option[0])
        elif shown[-1] == "shrinkfx" and word.endswith(".pt2"):
            shown.append(PLACEHOLDER_NAME)
        elif shown[-1] != "...":
            shown.append("...")
    return " ".join([*shown, "-- ..."] if separator else shown)


def strip_origins(
    text: str, explanation: Explanation, *, anonymous: bool = False
) -> str:
    """Remove from a sentence the places of operators in the user's model.

    Args:
        anonymous: also remove the places of their fake kernels.
    """
    for mismatch in explanation.mismatches if anonymous else ():
        text = text.replace(f" ({mismatch.place})", "") if mismatch.place else text
    for operator in _operators(explanation):
        text = text.replace(str(operator), operator.operator)
    return _ORIGIN.sub("", text)


def _operators(explanation: Explanation) -> list[Operator]:
    found = [*explanation.operators, *explanation.culprits]
    if explanation.chain is not None:
        chain = explanation.chain
        found += [*chain.fused, *chain.culprits, *chain.dies]
        found += [o for each in chain.inputs for o in each.made_by]
        if chain.access and chain.access.argument:
            found += chain.access.argument.made_by
    if explanation.values is not None:
        values = explanation.values
        found += [*values.culprits, *values.shown_in, *values.without]
    if explanation.compile_error is not None:
        found += explanation.compile_error.culprits
    # The longest first, because one name may be a prefix of another.
    return sorted(dict.fromkeys(found), key=lambda each: -len(str(each)))


def strip_default_overload(operator: str) -> str:
    """Remove ``.default`` from an operator's name."""
    return operator.removesuffix(".default")


_CODE = re.compile(
    r"`[^`]*`"  # already marked
    r"|\b(?:aten|prims|quantized)\.\w+(?:\.\w+)?|\b(?:torch\.ops\.)?\w+\.\w+\.default\b"
    r"|\b(?:cpp|triton)_\w*fused\w+(?:\.\.\.\w+)?"  # including shortened names
)


def mark_code(text: str) -> str:
    """Mark operators and kernels in a sentence as code, without ``.default``."""
    return _CODE.sub(
        lambda found: f"`{strip_default_overload(found[0].strip('`'))}`", text
    )


_OF_GPU = ("GPU ", "compute capability ", "driver ")
"""Prefixes of version entries that describe the GPU."""

_DROPPED = re.compile(r"^(Vulnerability |Collecting environment)")
"""CPU mitigations, which do not help a maintainer, and a progress line."""

_KERNEL = re.compile(
    r"^(Python platform: Linux-\d+(?:\.\d+)*)[^\n]*?(-(?:x86_64|aarch64))"
)
"""The suffix of a kernel release is dropped because its builder can choose any text."""


def environment_text(output: str, hosts: Iterable[str] = ()) -> str:
    """Remove private and useless lines from the output of ``collect_env``.

    Args:
        hosts: names of this machine.
    """
    rows = [row.rstrip() for row in output.splitlines() if not _DROPPED.match(row)]
    text = "\n".join(_KERNEL.sub(r"\1\2", row) for row in rows)
    return strip_paths(text, hosts).strip()


def with_gpu(text: str, versions: Iterable[str]) -> str:
    """Add the GPU on which the failure was seen, if any.

    Args:
        versions: software and hardware of the run, such as ``driver 580.95.05``.
    """
    gpus = [known for known in versions if known.startswith(_OF_GPU)]
    return f"{text}\nSeen on: {', '.join(gpus)}" if gpus else text
