"""Define the contract of a strategy, and find and load strategies.

A strategy obeys these laws; ``shrinkfx.testing.check_strategy`` tests them:

1. The same view gives the same edits in the same order.
2. The strategy does not change the view's candidate.
3. Every edit is one of ``shrinkfx.program.edits``; it applies, or raises
   ``InvalidEdit``.
4. The most promising edits come first, and the generator is lazy.
5. No edit depends on another one: the reducer tries them alone and in bundles.
6. The generator ends after at most ``EDITS_PER_NODE`` edits for each operator and
   input; for a printed program, for each statement, leaf of a statement, input and
   weight.

A strategy with a ``kind`` is for printed programs: its candidates have a
``PrintedProgram``, and it proposes ``Rewrite`` edits. All other strategies are for
operators.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from importlib import metadata
from itertools import islice
from typing import Protocol, runtime_checkable

from shrinkfx.errors import StrategyError
from shrinkfx.program.candidate import Candidate
from shrinkfx.program.edits import Edit, Rewrite
from shrinkfx.program.listing.printed_program import (
    UNTYPED,
    Kind,
    PrintedProgram,
    Types,
)
from shrinkfx.program.view import NO_SUSPECTS, View

ENTRY_POINTS = "shrinkfx.strategies"
EDITS_PER_NODE = 100
DEFAULT_ORDER = (
    *("keep_suspects", "drop_outputs", "cut_suffix", "cut_prefix", "drop_modules"),
    *("specialize_dims", "drop_nodes", "bypass_operators", "bypass_in_branches"),
    *("merge_inputs", "replace_operators"),
)
ORDER_FOR_LISTINGS = (
    "bisect_sizes",
    *("shrink_branches", "redirect_operands", "make_dims_static", "simplify_weights"),
    *("simplify_values", "simplify_dtypes", "simplify_layouts", "simplify_arguments"),
    # Last, because a size that matters takes the most queries of all. Dims are removed
    # before that, because removing one later has all of these queried again.
    *("minimize_sizes", "drop_dims", "shrink_sizes"),
)


@runtime_checkable
class Strategy(Protocol):
    """A pure source of edits.

    Attributes:
        name: the name of the strategy on the command line.
        combines: whether several edits may be applied as one. If not, they are
            alternatives and are tried one by one.
    """

    name: str
    combines: bool

    def propose(self, view: View) -> Iterator[Edit]:
        """Yield edits to the view's candidate, most promising first."""
        ...


@runtime_checkable
class Rewriter(Strategy, Protocol):
    """A strategy for printed programs.

    Attributes:
        kind: the part of the program that it simplifies: one of ``Kind``.
    """

    kind: str


def select_strategies(
    candidate: Candidate, strategies: Iterable[Strategy]
) -> list[Strategy]:
    """Select the strategies for printed programs, or those for operators."""
    listed = candidate.listing is not None
    return [s for s in strategies if isinstance(s, Rewriter) is listed]


def collect_proposals(
    strategy: Strategy,
    candidate: Candidate,
    suspects: Mapping[str, float] = NO_SUSPECTS,
    types: Types = UNTYPED,
) -> list[Edit]:
    """Collect a strategy's edits to a candidate, and check laws 2, 3 and 6.

    Raises:
        StrategyError: the strategy raised, or broke one of these laws.
    """
    before = candidate.to_json()
    limit = EDITS_PER_NODE * _size(candidate)
    view = View(candidate, suspects, types)
    try:
        edits = list(islice(strategy.propose(view), limit + 1))
    except Exception as error:  # a plug-in may raise anything
        message = f"strategy '{strategy.name}' raised {error!r}"
        raise StrategyError(message) from error
    if len(edits) > limit:
        raise make_law_error(strategy, 6, f"it proposed more than {limit} edits")
    wanted = Edit if candidate.listing is None else Rewrite
    for edit in edits:
        if not isinstance(edit, wanted):
            raise make_law_error(strategy, 3, f"it proposed {edit!r}")
    if candidate.to_json() != before:
        raise make_law_error(strategy, 2, "it changed the view's candidate")
    return edits


def _size(candidate: Candidate) -> int:
    """Count the parts of a candidate that edits can change."""
    if candidate.listing is None:
        return len(candidate.keep) + len(candidate.inputs)
    return len(candidate.listing.given) + _leaves(candidate.listing)


def _leaves(listing: PrintedProgram) -> int:
    lines = (line for block in listing.blocks for line in block.statements)
    return sum(1 + len(line.leaves) for line in lines)


def make_law_error(strategy: Strategy, law: int, seen: str) -> StrategyError:
    """Create the error for a strategy that broke a law of this module.

    Args:
        seen: what the strategy did.
    """
    return StrategyError(
        f"strategy '{strategy.name}' breaks law {law} of {__name__}: {seen}"
    )


OLD_NAMES = {
    "blame_ladder": "keep_suspects",
    "bypass_inside": "bypass_in_branches",
    "close_dims": "make_dims_static",
    "cut_insides": "shrink_branches",
    "keep_outputs": "drop_outputs",
    "module_cuts": "drop_modules",
    "plain_arguments": "simplify_arguments",
    "plain_dtypes": "simplify_dtypes",
    "plain_layouts": "simplify_layouts",
    "plain_values": "simplify_values",
    "plain_weights": "simplify_weights",
    "specialise_dims": "specialize_dims",
}
"""Names of built-in strategies before 2026-11-27, which are accepted until 0.2."""


def available() -> dict[str, Callable[[], Strategy]]:
    """Find every strategy: the built-in ones, then the entry points of other packages.

    Returns:
        Factories by name, in the order of the search.

    Raises:
        StrategyError: an installed strategy cannot be imported.
    """
    package = importlib.import_module("shrinkfx.strategies")
    makers: dict[str, Callable[[], Strategy]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"shrinkfx.strategies.{info.name}")
        own = [k for k in vars(module).values() if hasattr(k, "propose")]
        makers |= {kind.name: kind for kind in own}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        makers[point.name] = _loaded(point)
    ordered = [n for n in (*DEFAULT_ORDER, *ORDER_FOR_LISTINGS) if n in makers]
    return {n: makers[n] for n in [*ordered, *sorted(set(makers) - set(ordered))]}


def _loaded(point: metadata.EntryPoint) -> Callable[[], Strategy]:
    try:
        strategy: Callable[[], Strategy] = point.load()
    except Exception as error:  # a plug-in may raise anything
        package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
        raise StrategyError(
            f"strategy '{point.name}'{package} cannot be imported: {error!r}\n"
            f"try: python -c 'import {point.module}', or uninstall it"
        ) from error
    return strategy


def choose(names: Sequence[str] | None) -> list[Strategy]:
    """Create the named strategies, in the order of the names; all strategies if None.

    Raises:
        StrategyError: a name is unknown, or its object is not a strategy.
    """
    known = available()
    chosen = []
    for given in names or known:
        name = OLD_NAMES.get(given, given)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or list(known)
            raise StrategyError(
                f"unknown strategy '{name}'; did you mean {', '.join(near)}? "
                "(shrinkfx --list-strategies)"
            )
        strategy = known[name]()
        if not isinstance(strategy, Strategy):
            raise StrategyError(f"'{name}' lacks a name, combines or propose(view)")
        if isinstance(strategy, Rewriter) and strategy.kind not in {*Kind}:
            raise StrategyError(
                f"'{name}' has kind '{strategy.kind}': expected one of "
                f"{', '.join(Kind)}"
            )
        chosen.append(strategy)
    return chosen
