"""Replacements for the names of a user's model on an anonymous page.

    layers.3.attn.q_proj, p_layers_3_attn_q_proj_weight, acme.gate.default, model.py
    become  m1.3.m2.m3,   weight_4,                      custom.operator_1,  SOURCE

The reduced program keeps the names of the repro.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from shrinkfx.findings.operators import Operator
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.names import Names, short_names
from shrinkfx.program.listing.printed_program import PrintedProgram
from shrinkfx.program.skeleton import FEEDS, Role, Skeleton
from shrinkfx.report.issue.from_model import GENERIC

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
