"""Texts and runs without private data: paths, hosts, and names of the user's model.

An explanation gets the names that the repro has, or no names of the user's at all:

    input token_ids is declared [s77] and is [5]    becomes    input x is declared ...

A page of a run with ``--anonymous`` has no such names, and omits the input program:

    layers.3.attn.q_proj, p_layers_3_attn_q_proj_weight, acme.gate.default, model.py
    become  m1.3.m2.m3,   weight_4,                      custom.operator_1,  SOURCE
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from shrinkfx.findings.chain import Layout, SizeSymbol
from shrinkfx.findings.code import CodeLine, Quoted
from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.record import Explanation, Row
from shrinkfx.program.listing.names import Names, rename_values, short_names
from shrinkfx.program.listing.printed_program import MAIN, PrintedProgram
from shrinkfx.program.skeleton import FEEDS, Node, Role, Skeleton
from shrinkfx.report.header import remove_header
from shrinkfx.report.page.record import Check, Run, Source

GENERIC = re.compile(
    r"(x|y|z|arg|args|arg\d+|[sux]\d+|[NMKL]\d*|weight|buffer|constant|object)(_\d+)*"
)
"""Matches names that shrinkfx or export generates."""

_BEGINS = r"(?:(?<![\w.])|(?<=-[IL]))"
"""The context before a path: no name, or a compiler option."""

_INSTALLED = re.compile(_BEGINS + r"/[^\s\"':,;()]*?(?:site|dist)-packages/")
_PYTHONS = re.compile(_BEGINS + r"/[^\s\"':,;()]*?/lib(?:64)?/python[\d.]+/")
_FOLDERS = re.compile(r"(?:file:/+|(?:(?<![\w./])|(?<=-[IL]))~?/)(?:[^\s/\"':,;()]+/)+")
_ORIGIN = re.compile(
    r"(?:; it is dim \d+ of \S+|, which is the result of (?:(?!, which ).)+"
    r"|, which (?:(?!, which ).)+ computes)"  # as older versions wrote it
    r" in the input program"
)
"""What a sentence says of the input program (``SizeSymbol``, ``Layout``)."""


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
    parts = explanation.chain, explanation.compile_error, explanation.values
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


_ROLES = r"[Ii]nput|weight|registered buffer|constant|dim \d+ of"
"""The words before the name of a user's value in a sentence."""


def use_repro_names(
    explanation: Explanation,
    renamed: Mapping[str, str],
    *,
    models_too: bool = False,
    anonymous: bool = False,
) -> Explanation:
    """Replace names of inputs and weights by the short names of the repro.

    Args:
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program.
        models_too: add the name of the input program once, in the cause.
        anonymous: remove the names that the repro does not have: the role alone names
            such a value. Otherwise these names and the generated code stay.
    """
    layouts = [x for x in list_records(explanation, Layout) if x.role != "buffer"]
    known = {each.name for each in layouts}
    if anonymous:
        known |= {each.input for each in list_records(explanation, SizeSymbol)}
    named = {name: _new(name, renamed, "" if anonymous else name) for name in known}
    names = {old: new for old, new in {**renamed, **named}.items() if old != new}
    if not (names or anonymous):
        return explanation
    # Generated code numbers the inputs.
    by_number = ("input", "value")
    weights = {each.name for each in layouts if each.role not in by_number} - {""}
    in_code = {re.sub(r"\W", "_", name): names.get(name) or "_" for name in weights}

    def record(old: object, made: Any) -> Any:  # noqa: ANN401 - any record
        match old:
            case Layout() if old.role != "buffer":
                return replace(made, name=names.get(old.name, old.name))
            case SizeSymbol() if anonymous:
                name = names.get(old.input, old.input) or _UNNAMED * bool(old.input)
                return replace(made, input=name, whole_input="", whole_dim=None)
            case SizeSymbol():
                return replace(made, input=names.get(old.input, old.input))
            case CodeLine() if anonymous:
                return replace(made, text=_replace_words(made.text, in_code))
        return made

    # Parts of the explanation repeat sentences of the cause: keep them identical.
    values = {each.name for each in layouts if each.role == "value"}
    explaining = _naming(names, names.keys() - values if models_too else ())
    cause = {sentence: explaining(sentence) for sentence in explanation.cause}
    naming = _naming(names)
    return rebuild(explanation, lambda text: cause.get(text) or naming(text), record)


_UNNAMED = "an input"


def _naming(
    names: Mapping[str, str], to_explain: Iterable[str] = ()
) -> Callable[[str], str]:
    """Return a function that replaces names after their roles in texts.

    Args:
        to_explain: names of the input program to add in parentheses, once.
    """
    unexplained = {*to_explain}
    old_names = "|".join(map(re.escape, sorted({*names} - {""}, key=len)[::-1]))
    if not old_names:
        return lambda text: text
    named = re.compile(
        rf"\b(?P<role>{_ROLES}) (?P<old>{old_names})"
        r"(?!\w|\.\w| in the input program)"
    )

    def new(found: re.Match[str]) -> str:
        role, old = found["role"], found["old"]
        name = names[old] or _UNNAMED * role.startswith("dim ")
        text = f"{role} {name}".rstrip()
        if old not in unexplained:
            return text
        unexplained.discard(old)
        return f"{text} (`{old}` in the input program)"

    return lambda text: named.sub(new, text)


def _new(name: str, renamed: Mapping[str, str], default: str) -> str:
    """Return the new name; a printed module spells a weight's name differently."""
    printed = re.sub(r"\W", "_", name)
    spellings = (name, printed, f"_{printed}")
    return next((renamed[each] for each in spellings if each in renamed), default)


def _replace_words(text: str, words: Mapping[str, str]) -> str:
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
        # Older versions wrote no "module" into the sentences of explain.json.
        for place in str(operator), str(operator).replace("module ", ""):
            text = text.replace(place, operator.operator)
    return strip_input_program(text)


def strip_input_program(text: str) -> str:
    """Remove from a sentence what a value of the repro is in the input program."""
    return _ORIGIN.sub("", text)


# --- a page without the user's names

_OMITTED = "The input program is omitted, because the run is anonymous."


def anonymize_run(run: Run, renamed: Mapping[str, str], files: Iterable[str]) -> Run:
    """Remove from a run all names of the user's model, and its graph.

    The record is rebuilt, so that no field reaches the page unreviewed.

    Args:
        renamed: the repro's names of inputs and weights, by their names in the reduced
            program.
        files: names of files and modules from the command line.
    """
    names = short_names(run.listing) if run.listing is not None else None
    known = {**renamed, **(names.dims if names is not None else {})}
    hide = make_name_remover(run.program, _visible_operators(run), known, files)

    def plain(text: str) -> str:
        return hide(_LINE.sub("SOURCE", strip_paths(text)))

    summary, explanation = run.summary, None
    if run.explanation is not None:
        nodes = names.values[MAIN] if names is not None else {}
        explanation = _explanation(run.explanation, renamed, nodes, hide, plain)
    cause = explanation.cause if explanation else tuple(map(plain, summary.cause))
    return Run(
        model="The program",
        anonymous=True,
        command=strip_values(run.command) if run.command else "",
        summary=replace(
            summary,
            stopped=hide(summary.stopped),
            failure=plain(summary.failure),
            other_failures=tuple(replace(x, text="") for x in summary.other_failures),
            warnings=tuple(map(plain, summary.warnings)),
            suspects=(),
            cause=cause,
        ),
        checks=tuple(map(_check, run.checks)),
        no_program=_OMITTED,
        listing=_listing(run.listing, names) if run.listing and names else None,
        explanation=explanation,
        no_explanation="Nobody has asked." if run.no_explanation else "",
        repro=remove_header(run.repro),
        source=_source(run.source, hide) if run.source is not None else None,
        swept=rebuild(run.swept, plain, lambda _, made: made),
    )


_LINE = re.compile(r"(?<![\w./-])(?!repro\.py)[\w-]+\.py:\d+")
"""A line of a file without folders, other than a file of PyTorch."""


def _check(check: Check) -> Check:
    """Reduce the failure of a check to its kind, because messages may name anything."""
    kind = re.match(r"[\w-]+ in [\w-]+(?=:|$)", check.message)
    return replace(check, keep=frozenset(), message=kind[0] if kind else "")


def _listing(listing: PrintedProgram, names: Names) -> PrintedProgram:
    made = rename_values(listing, names)
    blocks = [
        replace(b, statements=tuple(replace(s, origin="") for s in b.statements))
        for b in made.blocks
    ]
    return replace(made, blocks=tuple(blocks))


def _explanation(
    explanation: Explanation,
    renamed: Mapping[str, str],
    nodes: Mapping[str, str],
    hide: Callable[[str], str],
    plain: Callable[[str], str],
) -> Explanation:
    explanation = use_repro_names(explanation, renamed, anonymous=True)
    comment = "#" if is_triton(explanation) else "//"

    def record(old: object, made: Any) -> Any:  # noqa: ANN401 - any record
        match old:
            case CodeLine():
                return replace(made, text=hide(_uncommented(old.text, comment)))
            case Operator():
                return Operator(nodes.get(old.name, ""), hide(old.operator))
            case Row():  # log lines may contain any name
                return replace(made, output=())
            case OperatorMismatch():
                return replace(made, fake_kernel="")
        return made

    def text(text: str) -> str:
        return plain(strip_origins(text, explanation, anonymous=True))

    return rebuild(explanation, text, record)


def _source(source: Source, hide: Callable[[str], str]) -> Source:
    """Remove comments, which quote the model's lines; line numbers stay."""
    is_python = source.name.endswith(".py") or contains_triton(source.lines)
    comment = "#" if is_python else "//"
    text = "\n".join(source.lines)
    if comment == "//":
        text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    lines = (hide(_uncommented(line, comment)) for line in text.split("\n"))
    return replace(source, lines=tuple(lines))


def _uncommented(line: str, comment: str) -> str:
    begins = r"(?:^|\s+)#" if comment == "#" else r"\s*//"
    return re.sub(f"{begins}.*", "", line)


def _visible_operators(run: Run) -> set[str]:
    """Return the operators that the repro names."""
    if run.listing is not None:
        statements = (line for block in run.listing.blocks for line in block.statements)
        return {line.callee.removeprefix("torch.ops.") for line in statements}
    reduced = run.reduced
    return {reduced.target(name) for name in reduced.operators} if reduced else set()


# --- names of the user's in a text

_EVERYDAY = re.compile(
    "all|blocks?|body|bounds|calls?|code|cond|count|data|device|down|error|fails|file"
    "|first|graph|head|in|index|inputs?|kernel|last|layers?|left|loop|main|mask|memory"
    "|model|new|next|node|ops|out|outputs?|passes|process|program|result|right|runs?"
    "|shape|size|stage|steps?|tail|test|time|up|values?"
    "|bias|running_mean|running_var|num_batches_tracked"  # of torch.nn
    r"|\w{0,2}"
)
"""Words of messages about any failure, such as "index out of bounds". A name that
equals one of them reveals nothing, and replacing it would damage such messages."""

_CALLED = {
    Role.INPUT: "input",
    Role.PARAMETER: "weight",
    Role.BUFFER: "buffer",
    Role.CONSTANT: "constant",
}


def make_name_remover(
    program: Skeleton | None,
    visible: Collection[str],
    renamed: Mapping[str, str],
    files: Iterable[str],
) -> Callable[[str], str]:
    """Return a function that replaces each name that a user may have chosen.

    Names are replaced as whole words, in each spelling of export and Inductor, and all
    at once, because a new name may equal another old name.

    Args:
        visible: operators that the repro names, which stay.
        renamed: the repro's names of inputs, weights and sizes, by their names in the
            reduced program.
        files: names of files and modules from the command line.
    """
    graph = [program.node(name) for name in program.graph] if program else []
    modules: dict[str, str] = {}
    operators: dict[str, str] = {}
    words = {}
    for node in graph:
        words[node.source.partition(":")[0]] = "SOURCE"
        for part in node.scope.split("."):
            if part and not part.isdigit():
                modules.setdefault(part, f"m{len(modules) + 1}")
        is_call = node.role in (Role.OPERATOR, Role.SUBGRAPH_NODE)
        is_custom = is_call and Operator("", node.target).is_custom
        if is_custom and node.target not in visible:
            new = f"custom.operator_{len({*operators.values()}) + 1}"
            new = operators.get(node.target, new)
            namespace, name, *_ = node.target.split(".")
            forms = (node.target, f"{namespace}.{name}", f"{namespace}::{name}", name)
            operators |= dict.fromkeys(forms, new)
    words |= dict.fromkeys(files, "FILE") | operators | modules
    paths = {f"{_spelt(node.scope)}_" for node in graph}
    for number, node in enumerate(graph):
        if node.role in FEEDS or node.target in operators or not _is_by_export(node):
            new = f"{_CALLED.get(node.role, 'op')}_{number}"
            words[node.name] = renamed.get(node.name, new)
        if node.role in FEEDS - {Role.INPUT}:
            words[_own_name(_spelt(node.name), paths)] = words[node.name]
    words |= renamed
    spelt = {_spelt(word): new for word, new in words.items()}
    spelt = {word: new for word, new in spelt.items() if not _tells_nothing(word)}
    if not spelt:
        return lambda text: text
    longest_first = sorted(spelt, key=len, reverse=True)
    any_word = "|".join(re.escape(w).replace("_", "[._]+") for w in longest_first)
    found = re.compile(rf"(?<![\w-])(?<!aten\.){_PREFIX}(?:{any_word})(?![\w-])")
    return lambda text: found.sub(lambda match: spelt[_spelt(match[0])], text)


def _tells_nothing(word: str) -> bool:
    return bool(GENERIC.fullmatch(word) or _EVERYDAY.fullmatch(word))


def _is_by_export(node: Node) -> bool:
    """Return whether export named a node, after its operator."""
    base = re.sub(r"_\d+$", "", node.name.rpartition(".")[2])
    called = "_".join(re.split(r"\W+", f" {node.target} "))
    return f"_{base}_" in called


def _own_name(weight: str, paths: Collection[str]) -> str:
    """Remove the path of the module, or of one around it, from a weight's name."""
    parts = weight.split("_")
    heads = ("_".join([*parts[:end], ""]) for end in range(len(parts) - 1, 0, -1))
    known = (head for head in heads if any(path.startswith(head) for path in paths))
    return weight.removeprefix(next(known, ""))


_PREFIX = "(?:L__self___)?(?:(?:p|b|c|obj)_)?"


def _spelt(name: str) -> str:
    """Normalize a name: the user, export and Inductor spell it differently."""
    return re.sub("[._]+", "_", re.sub(f"^{_PREFIX}", "", name))
