"""Texts and runs without private data: paths, hosts, and names of the user's model.

An explanation gets the names that the repro has, or no names of the user's at all:

    input token_ids is declared [s77] and is [5]    becomes    input x is declared ...

A page of a run with ``--anonymous`` has no such names. Its record is rebuilt field by
field, so that no field reaches the page unreviewed:

    layers.3.attn.q_proj, p_layers_3_attn_q_proj_weight, acme.gate.default, model.py
    become  m1.3.m2.m3,   weight_4,                      custom.operator_1,  SOURCE
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, TypeVar

from shrinkfx.findings.chain import Layout, SizeSymbol
from shrinkfx.findings.code import CodeLine, Quoted
from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.record import Explanation, Row
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import Names, rename_values, short_names
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import FEEDS, Node, Role, Skeleton
from shrinkfx.report.header import ABOUT_ITSELF
from shrinkfx.report.page.record import Check, Run, Source, Summary, SuspectRow

GENERIC = re.compile(
    r"(x|y|z|arg|args|arg\d+|[sux]\d+|[NMKL]\d*|weight|buffer|constant|object)(_\d+)*"
)
"""Matches names that shrinkfx or export generates."""

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


def quoted_code(explanation: Explanation) -> list[Quoted]:
    """List the quotations of generated code in an explanation."""
    parts = explanation.chain, explanation.compile_error
    return [part.code for part in parts if part is not None]


def is_triton(explanation: Explanation) -> bool:
    """Return whether the failing code is Triton's, which is Python."""
    quotations = quoted_code(explanation)
    return contains_triton(line.text for code in quotations for line in code)


def contains_triton(lines: Iterable[str]) -> bool:
    """Return whether lines of code use Triton's language."""
    return any(re.search(r"\btl\.\w", line) for line in lines)


# --- an explanation with other names

_Record = TypeVar("_Record")


def list_records(value: object, kind: type[_Record]) -> Iterator[_Record]:
    """Yield the records of a kind in a record, at any depth."""
    if isinstance(value, kind):
        yield value
    parts = value if isinstance(value, tuple) else ()
    for part in vars(value).values() if is_dataclass(value) else parts:
        yield from list_records(part, kind)


def rebuild(
    value: _Record,
    text: Callable[[str], str],
    record: Callable[[Any, Any], Any],
) -> _Record:
    """Return a record with other texts and names.

    Args:
        text: changes a string.
        record: changes a record, given the old one and the one with changed parts.
    """
    new: Any = value
    if isinstance(value, tuple):
        new = tuple(rebuild(each, text, record) for each in value)
    elif type(new) is str:  # no member of an enum
        new = text(new)
    elif is_dataclass(value):
        parts = {k: rebuild(each, text, record) for k, each in vars(value).items()}
        new = record(value, replace(value, **parts))  # type: ignore[type-var]
    made: _Record = new
    return made


_ROLES = ("input", "weight", "registered buffer", "constant")
"""Roles of values that a user named."""

_OURS = ("buffer", "value")
"""Roles of values that a compiler or an operator named."""

_DIM = r"dim \d+ of"


def use_repro_names(
    explanation: Explanation, renamed: Mapping[str, str], *, models_too: bool
) -> Explanation:
    """Replace names of inputs and weights in sentences by the repro's short names.

    Names that the repro does not have, and generated code, are unchanged.

    Args:
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program.
        models_too: add the name of the input program once, in the cause.
    """
    layouts = (part.name for part in _users_values(explanation))
    new = {**renamed, **{name: _new(name, renamed) or name for name in layouts}}
    names = {old: to for old, to in new.items() if old != to}
    if not names:
        return explanation

    def record(old: object, made: Any) -> Any:  # noqa: ANN401 - any record
        if isinstance(old, Layout) and old.role not in _OURS:
            return replace(made, name=names.get(old.name, old.name))
        if isinstance(old, SizeSymbol):
            return replace(made, input=names.get(old.input, old.input))
        return made

    # Parts of the explanation repeat sentences of the cause: keep them identical.
    explaining = _naming(names, names if models_too else ())
    cause = {sentence: explaining(sentence) for sentence in explanation.cause}
    naming = _naming(names)
    return rebuild(explanation, lambda text: cause.get(text) or naming(text), record)


def _users_values(explanation: Explanation) -> list[Layout]:
    layouts = list_records(explanation, Layout)
    return [layout for layout in layouts if layout.role not in _OURS]


def _naming(
    names: Mapping[str, str],
    to_explain: Iterable[str] = (),
    roles: tuple[str, ...] = (*_ROLES, _DIM),
) -> Callable[[str], str]:
    """Return a function that replaces names after their roles in texts.

    Args:
        to_explain: names of the input program to add in parentheses, once.
    """
    unexplained = {*to_explain}
    old_names = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    named = re.compile(
        rf"(?P<role>\b(?:{'|'.join(roles)}) )(?P<old>{old_names})"
        r"(?!\w|\.\w| in the input program)"
    )

    def new(found: re.Match[str]) -> str:
        old = found["old"]
        text = f"{found['role']}{names[old]}"
        if old not in unexplained:
            return text
        unexplained.discard(old)
        return f"{text} (named {old} in the input program)"

    return lambda text: named.sub(new, text)


def anonymize_explanation(
    explanation: Explanation, renamed: Mapping[str, str]
) -> Explanation:
    """Replace the user's names in all of an explanation, as in an anonymous repro.

    A value that the repro does not contain has no new name; its role alone names it,
    such as ``input``.
    """
    values = {(each.role, each.name) for each in _users_values(explanation)}
    new = {(role, name): _new(name, renamed) if name else "" for role, name in values}
    by_role = new | {(role, old): to for old, to in renamed.items() for role in _ROLES}
    phrases = {
        f"{role} {old}": f"{role} {to}".strip()
        for (role, old), to in by_role.items()
        if old
    }
    in_code = {
        re.sub(r"\W", "_", name): by_role[role, name] or "_"
        for role, name in new
        if name and role != "input"  # generated code numbers the inputs
    }
    inputs = {each.input for each in list_records(explanation, SizeSymbol)} - {""}
    carriers = {**renamed, **{n: _new(n, renamed) or "an input" for n in inputs}}
    naming: Callable[[str], str] = _naming(carriers, (), (_DIM,)) if carriers else str

    def record(old: object, made: Any) -> Any:  # noqa: ANN401 - any record
        if isinstance(old, Layout) and old.role not in _OURS:
            return replace(made, name=by_role.get((old.role, old.name), old.name))
        if isinstance(old, SizeSymbol):
            name = carriers.get(old.input, "")
            return replace(made, input=name, whole_input="", whole_dim=None)
        if isinstance(old, CodeLine):
            return replace(made, text=_replaced(made.text, in_code))
        return made

    return rebuild(explanation, lambda t: naming(_replaced(t, phrases)), record)


def _new(name: str, renamed: Mapping[str, str]) -> str:
    """Return the new name; a printed module spells a weight's name differently."""
    printed = re.sub(r"\W", "_", name)
    spellings = (name, printed, f"_{printed}")
    return next((renamed[each] for each in spellings if each in renamed), "")


def _replaced(text: str, words: Mapping[str, str]) -> str:
    """Replace whole words at once, because a new name may equal another old name."""
    if not words:
        return text
    pattern = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    bounded = rf"(?<![\w.])(?:{pattern})(?!\w|\.\w)"
    return re.sub(bounded, lambda found: words[found[0]], text)


def strip_origins(
    text: str, explanation: Explanation, *, anonymous: bool = False
) -> str:
    """Remove from a sentence the places of operators in the user's model.

    Args:
        anonymous: also remove the places of their fake kernels.
    """
    for mismatch in explanation.mismatches if anonymous else ():
        text = text.replace(f" ({mismatch.place})", "") if mismatch.place else text
    operators = {*list_records(explanation, Operator)}
    # The longest first, because one name may be a prefix of another.
    for operator in sorted(operators, key=lambda each: (-len(str(each)), str(each))):
        text = text.replace(str(operator), operator.operator)
    return _ORIGIN.sub("", text)


# --- a page without the user's names

_MODEL = "The program"


def anonymize_run(run: Run, renamed: Mapping[str, str], files: Iterable[str]) -> Run:
    """Remove from a run all names of the user's model, as ``ISSUE.md`` does.

    PyTorch's operators and their data flow remain. Of operators that were removed,
    names, sizes and custom operators are omitted; of other failures, their messages.

    Args:
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program.
        files: names of files and modules from the command line.
    """
    new = choose_new_names(run.program, run.reduced, run.listing, renamed, files)
    program = _program(run, run.program, new) if run.program is not None else None
    explanation = None
    if run.explanation is not None:
        explanation = _explanation(run.explanation, renamed, new)
    return Run(
        model=_MODEL,
        anonymous=True,
        command=strip_values(run.command) if run.command else "",
        summary=_summary(run.summary, explanation, new),
        checks=tuple(_check(check, new) for check in run.checks),
        program=program,
        no_program="The program's graph is not known." if run.no_program else "",
        reduced=_left(run.reduced, program, new) if run.reduced and program else None,
        listing=_listing(run.listing, new) if run.listing is not None else None,
        explanation=explanation,
        no_explanation="Nobody has asked." if run.no_explanation else "",
        repro=_repro(run.repro, new),
        source=_source(run.source, new) if run.source is not None else None,
        swept=rebuild(
            run.swept, lambda text: new.replaced(_plain(text)), lambda _, made: made
        ),
    )


# --- the input program and the reduced program


def _program(run: Run, old: Skeleton, new: NewNames) -> Skeleton:
    shown: set[str] = set()
    if run.reduced is not None and run.listing is None:  # the repro has these sizes
        shown = {*run.reduced.keep, *run.reduced.inputs}
    nodes = [_node(old.node(name), new, name in shown) for name in old.graph]
    writes = [(new.nodes[value], new.nodes[buffer]) for value, buffer in old.writes]
    outputs = [new.nodes[name] for name in old.outputs]
    return Skeleton(nodes, outputs, original_nodes=old.original_nodes, writes=writes)


def _node(node: Node, new: NewNames, is_shown: bool) -> Node:
    value = node.value
    if value is not None and not is_shown:
        value = replace(value, shape=("...",))
    return replace(
        node,
        name=new.nodes[node.name],
        target=new.operator(node.target),
        operands=tuple(new.nodes[each] for each in node.operands),
        value=value,
        scope=new.path(node.scope),
        source="",
    )


def _left(reduced: Candidate, program: Skeleton, new: NewNames) -> Candidate:
    named = new.nodes
    return Candidate(
        program,
        frozenset(named[name] for name in reduced.keep if name in named),
        {named[value]: named[to] for value, to in reduced.bypass.items()},
        reduced.outputs,
        {named[name]: named[to] for name, to in reduced.replace.items()},
    )


def _listing(listing: PrintedProgram, new: NewNames) -> PrintedProgram:
    assert new.listing is not None
    made = rename_values(listing, new.listing)
    blocks = [
        replace(b, statements=tuple(replace(s, origin="") for s in b.statements))
        for b in made.blocks
    ]
    return replace(made, blocks=tuple(blocks))


# --- the checks and their results


def _check(check: Check, new: NewNames) -> Check:
    """Reduce the failure of a check to its kind, because messages may name anything."""
    kind = re.match(r"[\w-]+ in [\w-]+(?=:|$)", check.message)
    keep = frozenset(new.nodes.get(name, name) for name in check.keep)
    return replace(check, keep=keep, message=kind[0] if kind else "")


def _summary(
    summary: Summary, explanation: Explanation | None, new: NewNames
) -> Summary:
    cause = tuple(new.replaced(_plain(sentence)) for sentence in summary.cause)
    return replace(
        summary,
        stopped=new.replaced(summary.stopped),
        failure=new.replaced(_plain(summary.failure)),
        other_failures=tuple(
            replace(caught, text="") for caught in summary.other_failures
        ),
        warnings=tuple(new.replaced(_plain(text)) for text in summary.warnings),
        suspects=tuple(_suspected(each, new) for each in summary.suspects),
        cause=explanation.cause if explanation is not None else cause,
    )


def _plain(text: str) -> str:
    return _LINE.sub("SOURCE", strip_paths(text))


_LINE = re.compile(r"(?<![\w./-])(?!repro\.py)[\w-]+\.py:\d+")
"""A line of a file without folders, other than a file of PyTorch."""


def _suspected(row: SuspectRow, new: NewNames) -> SuspectRow:
    node = new.nodes.get(row.node, "")
    operator = new.operator(row.operator)
    why = new.replaced(_plain(row.why))
    return replace(row, operator=operator, node=node, source="", why=why)


def _repro(script: str, new: NewNames) -> str:
    """Replace the user's names in the header of the repro where it quotes the failure.

    Header fields in shrinkfx's own words contain no such names, and stay.
    """
    lines = script.splitlines(keepends=True)
    head = next((i for i, line in enumerate(lines) if line[:1] != "#"), len(lines))
    shown, is_ours = [], False
    for line in lines[:head]:
        began = _FIELD.match(line)
        if began is not None or not _GOES_ON.match(line):
            is_ours = began is not None and began[1] in ABOUT_ITSELF
        shown.append(line if is_ours else new.replaced(line))
    return "".join([*shown, *lines[head:]])


_FIELD = re.compile(r"# (\w+(?: \w+)?): ")
_GOES_ON = re.compile(r"# {3,}\S")


# --- the cause


def _explanation(
    explanation: Explanation, renamed: Mapping[str, str], new: NewNames
) -> Explanation:
    explanation = anonymize_explanation(explanation, renamed)
    comment = "#" if is_triton(explanation) else "//"

    def plain(text: str) -> str:
        return new.replaced(_plain(strip_origins(text, explanation, anonymous=True)))

    def code(text: str) -> str:
        return new.replaced(_uncommented(text, comment))

    def record(old: object, made: Any) -> Any:  # noqa: ANN401 - any record
        match old:
            case CodeLine():
                return replace(made, text=code(old.text))
            case Operator():
                name, operator = new.nodes.get(old.name, ""), new.operator(old.operator)
                return Operator(name, operator)
            case Row():  # log lines may contain any name
                return replace(made, output=())
            case OperatorMismatch():
                return replace(made, fake_kernel="")
        return made

    return rebuild(explanation, plain, record)


def _source(source: Source, new: NewNames) -> Source:
    """Remove comments, which quote the model's lines; line numbers stay."""
    is_python = source.name.endswith(".py") or contains_triton(source.lines)
    comment = "#" if is_python else "//"
    text = "\n".join(source.lines)
    if comment == "//":
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    lines = (new.replaced(_uncommented(line, comment)) for line in text.split("\n"))
    return replace(source, lines=tuple(lines))


def _uncommented(line: str, comment: str) -> str:
    begins = r"(?:^|\s+)#" if comment == "#" else r"\s*//"
    return re.sub(f"{begins}.*", "", line)


_SHORT = 2
"""Maximum length of a name that reveals nothing: ``x``, ``q1``."""


@dataclass(frozen=True)
class NewNames:
    """New names, by old names.

    Attributes:
        nodes: names of all nodes of the program, and of inputs of the reduced program.
        operators: names of custom operators that were removed; the repro names the
            others.
        modules: names of the components of module paths.
        listing: the renaming of a printed program; None for any other result.
        replaced: replaces all these names in a text.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    listing: Names | None = None
    replaced: Callable[[str], str] = lambda text: text

    def path(self, path: str) -> str:
        """Rename a module path; numbers stay."""
        return _path(path, self.modules)

    def operator(self, target: str) -> str:
        """Return the new name of an operator, or its own if it is kept."""
        return self.operators.get(target, target)


_EVERYDAY = re.compile(
    "all|blocks?|body|bounds|calls?|code|cond|count|data|device|down|error|fails|file"
    "|first|graph|head|in|index|inputs?|kernel|last|layers?|left|loop|main|mask|memory"
    "|model|new|next|node|ops|out|outputs?|passes|process|program|result|right|runs?"
    "|shape|size|stage|steps?|tail|test|time|up|values?"
)
"""Words of messages about any failure, such as "index out of bounds". A name that
equals one of them reveals nothing, and replacing it would damage such messages."""

_OF_TORCH_NN = ("bias", "running_mean", "running_var", "num_batches_tracked")
"""Names of parameters and buffers in ``torch.nn``, besides ``weight``."""


def choose_new_names(
    program: Skeleton | None,
    reduced: Candidate | None,
    listing: PrintedProgram | None,
    renamed: Mapping[str, str],
    files: Iterable[str],
) -> NewNames:
    """Choose a new name for each name that a user may have chosen.

    Args:
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program.
        files: names of files and modules from the command line.
    """
    if program is None:
        program = Skeleton((), ())
    listed = _listed(listing, renamed) if listing is not None else None
    of_result = dict(renamed)
    dims: Mapping[str, str] = {}
    if listing is not None and listed is not None:
        main = listed.values[listing.main.name]
        for old, new in main.items():
            of_result[old.removeprefix("self.")] = new.removeprefix("self.")
        dims = listed.dims
    nodes = _nodes(program, of_result)
    operators = _operators(program, _kept(reduced, listing))
    modules = _modules(program)
    words: dict[str, str] = {**dims}
    words |= {n: to for n, to in nodes.items() if _is_own(program, n, operators)}
    for target, to in operators.items():
        namespace, name, *_ = target.split(".")
        forms = (target, f"{namespace}.{name}", f"{namespace}::{name}", name)
        words |= dict.fromkeys(forms, to)
    paths = _paths(program)
    words |= {path: _path(path, modules) for path in paths}
    sources = {program.node(n).source.partition(":")[0] for n in program.graph} - {""}
    words |= modules | dict.fromkeys(sources, "SOURCE")
    words |= dict.fromkeys(files, "FILE")
    weights = {n for n in nodes if _is_weight(program, n)}
    words |= {_own_name(n, paths): nodes[n] for n in weights}
    return NewNames(
        nodes, operators, modules, listed, _replacing(words, weights | {*renamed})
    )


def _listed(listing: PrintedProgram, renamed: Mapping[str, str]) -> Names:
    """Return the names of a printed program, as its repro has them."""
    found = short_names(listing)
    main = dict(found.values[listing.main.name])
    for entry in listing.given:
        new = renamed.get(entry.name, main[entry.spelling].removeprefix("self."))
        main[entry.spelling] = new if entry.is_input else f"self.{new}"
    return Names({**found.values, listing.main.name: main}, found.dims)


_CALLED = {
    Role.INPUT: "input",
    Role.PARAMETER: "weight",
    Role.BUFFER: "buffer",
    Role.CONSTANT: "constant",
    Role.OPERATOR: "op",
}


def _nodes(program: Skeleton, of_result: Mapping[str, str]) -> dict[str, str]:
    """Number the nodes that the reduced program does not name."""
    found = dict(of_result)
    taken = {*of_result.values()}
    for number, name in enumerate(program.graph):
        new = f"{_CALLED.get(program.node(name).role, 'value')}_{number}"
        while new in taken:
            new += "_"
        found.setdefault(name, new)
    return found


def _kept(reduced: Candidate | None, listing: PrintedProgram | None) -> set[str]:
    """Return the operators that the reduced program calls, and its repro names."""
    found: set[str] = set()
    if reduced is not None:
        found |= {reduced.target(name) for name in reduced.operators}
    if listing is not None:
        calls = (line.callee for block in listing.blocks for line in block.statements)
        found |= {callee.removeprefix("torch.ops.") for callee in calls}
    return found


def _operators(program: Skeleton, visible: set[str]) -> dict[str, str]:
    nodes = map(program.node, program.graph)
    called = (Role.OPERATOR, Role.SUBGRAPH_NODE)
    targets = dict.fromkeys(node.target for node in nodes if node.role in called)
    hidden = [t for t in targets if Operator("", t).is_custom and t not in visible]
    return {t: f"custom.operator_{n}" for n, t in enumerate(hidden, 1)}


def _modules(program: Skeleton) -> dict[str, str]:
    paths = (program.node(name).scope for name in program.graph)
    parts = dict.fromkeys(part for path in paths for part in path.split(".") if part)
    named = (part for part in parts if not part.isdigit())
    return {part: f"m{number}" for number, part in enumerate(named, 1)}


def _paths(program: Skeleton) -> set[str]:
    """Return the module paths, with the paths of their parents."""
    paths = {program.node(name).scope for name in program.graph}
    parts = [path.split(".") for path in paths if path]
    return {".".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}


def _own_name(weight: str, paths: Iterable[str]) -> str:
    """Remove the module's path from a weight's name."""
    spelt = _spelt(weight)
    modules = (f"{_spelt(path)}_" for path in paths)
    owner = max((m for m in modules if spelt.startswith(m)), key=len, default="")
    return spelt.removeprefix(owner)


def _path(path: str, modules: Mapping[str, str]) -> str:
    return ".".join(modules.get(part, part) for part in path.split("."))


def _is_own(program: Skeleton, name: str, hidden: Mapping[str, str]) -> bool:
    """Return whether a user chose a node's name, not an operator of PyTorch."""
    if name not in program:
        return True
    node = program.node(name)
    if node.role in FEEDS or node.target in hidden:
        return True
    base = re.sub(r"_\d+$", "", name.rpartition(".")[2])
    called = "_".join(re.split(r"\W+", f" {node.target} "))
    return f"_{base}_" not in called


def _is_weight(program: Skeleton, name: str) -> bool:
    return name in program and program.node(name).role in FEEDS - {Role.INPUT}


def _replacing(words: Mapping[str, str], weights: set[str]) -> Callable[[str], str]:
    """Return a function that replaces whole words at once.

    All at once, because a new name may equal another old name.
    """
    specific = {w: new for w, new in words.items() if not _tells_nothing(w)}
    spelt = {_spelt(w): new for w, new in specific.items() if w in weights}
    spelt = {w: new for w, new in spelt.items() if not _tells_nothing(w)}
    plain = {w: new for w, new in specific.items() if w not in weights}
    patterns = {w: re.escape(w) for w in plain} | {w: _spellings(w) for w in spelt}
    if not patterns:
        return lambda text: text
    longest_first = sorted(patterns, key=len, reverse=True)
    any_word = "|".join(patterns[word] for word in longest_first)
    found = re.compile(rf"(?<![\w-])(?<!aten\.)(?:{any_word})(?![\w-])")

    def new(match: re.Match[str]) -> str:
        return plain.get(match[0]) or spelt[_spelt(match[0])]

    return lambda text: found.sub(new, text)


def _tells_nothing(word: str) -> bool:
    is_known = GENERIC.fullmatch(word) or _EVERYDAY.fullmatch(word)
    return bool(is_known) or word in _OF_TORCH_NN or len(word) <= _SHORT


_PREFIX = "(?:L__self___)?(?:(?:p|b|c|obj)_)?"


def _spelt(weight: str) -> str:
    """Normalize a weight's name: the user, export and Inductor spell it differently."""
    return re.sub("[._]+", "_", re.sub(f"^{_PREFIX}", "", weight))


def _spellings(weight: str) -> str:
    return _PREFIX + re.escape(weight).replace("_", "[._]+")
