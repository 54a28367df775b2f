"""Names of a user's model, each with what a page says in its place.

layers.3.attn.q_proj, p_layers_3_attn_q_proj_weight, acme.gate.default, model.py
become  m1.3.m2.m3,   weight_4,                      custom.operator_1,  SOURCE

What is left of a program has the names that the repro has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from shrinkfx.program.candidate import Candidate
from shrinkfx.program.listing.listing import Listing
from shrinkfx.program.listing.names import Names, short_names
from shrinkfx.program.skeleton import FEEDS, Role, Skeleton
from shrinkfx.report.explanation.operators import Operator
from shrinkfx.report.issue.from_model import GENERIC

_SHORT = 2
"""Letters of a name that tells nothing of a model: ``x``, ``q1``."""


@dataclass(frozen=True)
class NewNames:
    """New names by old ones.

    Attributes:
        nodes: of all nodes of the program, and of what the result is given.
        operators: of custom operators that are not left; the repro has the others.
        modules: of parts of their paths.
        listing: of a result that is a listing, as that is renamed; else None.
        words: all that is replaced in texts, by what; a pattern where ``is_weight``.
    """

    nodes: Mapping[str, str] = field(default_factory=dict)
    operators: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    listing: Names | None = None
    replaced: Callable[[str], str] = lambda text: text

    def path(self, path: str) -> str:
        """Rename a path of modules; numbers stay."""
        parts = path.split(".")
        return ".".join(self.modules.get(part, part) for part in parts)

    def operator(self, target: str) -> str:
        """Name what a node calls."""
        return self.operators.get(target, target)


_EVERYDAY = re.compile(
    "all|blocks?|body|bounds|calls?|code|cond|count|data|device|down|error|fails|file"
    "|first|graph|head|in|index|inputs?|kernel|last|layers?|left|loop|main|mask|memory"
    "|model|new|next|node|ops|out|outputs?|passes|process|program|result|right|runs?"
    "|shape|size|stage|steps?|tail|test|time|up|values?"
)
"""Words of which sentences on any failure are made: "index out of bounds". Where one is
a name as well, it tells nothing of a model, and such a sentence stays what it is."""

_OF_TORCH_NN = ("bias", "running_mean", "running_var", "num_batches_tracked")
"""What modules of ``torch.nn`` call theirs, besides ``weight``."""


def new_names(
    program: Skeleton | None,
    left: Candidate | None,
    listing: Listing | None,
    renamed: Mapping[str, str],
    files: Iterable[str],
) -> NewNames:
    """Find a new name for each that a user may have given.

    Args:
        renamed: what the repro calls inputs and weights, by their names in the result.
        files: names of files and modules that the run was told of.
    """
    listed = _listed(listing, renamed) if listing is not None else None
    of_result = dict(renamed)
    dims: Mapping[str, str] = {}
    if listing is not None and listed is not None:
        own = listed.values[listing.main.name]
        of_result |= {n.removeprefix("self."): to for n, to in _plain(own)}
        dims = listed.dims
    nodes = _nodes(program, of_result)
    operators = _operators(program, _kept(left, listing))
    modules = _modules(program)
    words: dict[str, str] = {**dims}
    words |= {n: to for n, to in nodes.items() if _is_own(program, n, operators)}
    for target, to in operators.items():
        namespace, name, *_ = target.split(".")
        forms = (target, f"{namespace}.{name}", f"{namespace}::{name}", name)
        words |= dict.fromkeys(forms, to)
    paths = _paths(program)
    words |= {path: _path(path, modules) for path in paths}
    words |= modules | dict.fromkeys(_sources(program), "SOURCE")
    words |= dict.fromkeys(files, "FILE")
    weights = {n for n in nodes if program is not None and _is_weight(program, n)}
    words |= {_own_name(n, paths): nodes[n] for n in weights}
    return NewNames(
        nodes, operators, modules, listed, _replacing(words, weights | {*renamed})
    )


def _listed(listing: Listing, renamed: Mapping[str, str]) -> Names:
    """Name what a listing has as its repro does."""
    found = short_names(listing)
    main = dict(found.values[listing.main.name])
    for given in listing.given:
        new = renamed.get(given.name, main[given.spelling].removeprefix("self."))
        main[given.spelling] = new if given.is_input else f"self.{new}"
    return Names({**found.values, listing.main.name: main}, found.dims)


def _plain(names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    return ((old, new.removeprefix("self.")) for old, new in names.items())


_CALLED = {
    Role.INPUT: "input",
    Role.PARAMETER: "weight",
    Role.BUFFER: "buffer",
    Role.CONSTANT: "constant",
    Role.OPERATOR: "op",
}


def _nodes(program: Skeleton | None, of_result: Mapping[str, str]) -> dict[str, str]:
    """Number what the result does not name."""
    found = dict(of_result)
    taken = {*of_result.values()}
    for number, name in enumerate(program.graph if program is not None else ()):
        assert program is not None
        new = f"{_CALLED.get(program.node(name).role, 'value')}_{number}"
        while new in taken:
            new += "_"
        found.setdefault(name, new)
    return found


def _kept(left: Candidate | None, listing: Listing | None) -> set[str]:
    """List what the result calls, which its repro names."""
    found = (
        {left.target(name) for name in left.operators} if left is not None else set()
    )
    if listing is not None:
        calls = (line.callee for block in listing.blocks for line in block.statements)
        found |= {callee.removeprefix("torch.ops.") for callee in calls}
    return found


def _operators(program: Skeleton | None, kept: set[str]) -> dict[str, str]:
    if program is None:
        return {}
    nodes = map(program.node, program.graph)
    called = (Role.OPERATOR, Role.SUBGRAPH_NODE)
    targets = dict.fromkeys(node.target for node in nodes if node.role in called)
    hidden = [t for t in targets if Operator("", t).is_custom and t not in kept]
    return {t: f"custom.operator_{n}" for n, t in enumerate(hidden, 1)}


def _modules(program: Skeleton | None) -> dict[str, str]:
    if program is None:
        return {}
    paths = (program.node(name).scope for name in program.graph)
    parts = dict.fromkeys(part for path in paths for part in path.split(".") if part)
    named = (part for part in parts if not part.isdigit())
    return {part: f"m{number}" for number, part in enumerate(named, 1)}


def _paths(program: Skeleton | None) -> set[str]:
    """List the paths of modules, and of those that they are in."""
    if program is None:
        return set()
    paths = {program.node(name).scope for name in program.graph}
    parts = [path.split(".") for path in paths if path]
    return {".".join(each[:end]) for each in parts for end in range(1, len(each) + 1)}


def _own_name(weight: str, paths: Iterable[str]) -> str:
    """Leave out of a weight's name the module that has it."""
    spelt = _spelt(weight)
    modules = (f"{_spelt(path)}_" for path in paths)
    owner = max((m for m in modules if spelt.startswith(m)), key=len, default="")
    return spelt.removeprefix(owner)


def _path(path: str, modules: Mapping[str, str]) -> str:
    return ".".join(modules.get(part, part) for part in path.split("."))


def _sources(program: Skeleton | None) -> set[str]:
    """List the files of the model's lines."""
    if program is None:
        return set()
    return {program.node(n).source.partition(":")[0] for n in program.graph} - {""}


def _is_own(program: Skeleton | None, name: str, hidden: Mapping[str, str]) -> bool:
    """Tell whether a user has named a node, as none of PyTorch's operators is."""
    if program is None or name not in program:
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
    """Replace whole words, all at once: a new name may be another one's old one."""
    told = {w: new for w, new in words.items() if not _tells_nothing(w)}
    spelt = {_spelt(w): new for w, new in told.items() if w in weights}
    spelt = {w: new for w, new in spelt.items() if not _tells_nothing(w)}
    plain = {w: new for w, new in told.items() if w not in weights}
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
    """Spell it in one way: a user, export and Inductor each have their own."""
    return re.sub("[._]+", "_", re.sub(f"^{_PREFIX}", "", weight))


def _spellings(weight: str) -> str:
    return _PREFIX + re.escape(weight).replace("_", "[._]+")
