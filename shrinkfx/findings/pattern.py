"""The pattern of a bug: the operators of its reduced program, and who reads whom."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Self

import networkx as nx
from networkx.algorithms.isomorphism import DiGraphMatcher

from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.record import Message

_LARGEST = 12
"""Maximum number of operators of a pattern that is searched for.

The time of the search grows exponentially with this number, and a reduced program with
more operators is rarely a part of another model.
"""

_MOST = 1000
"""Maximum number of occurrences of a pattern in a program that are looked at."""


@dataclass(frozen=True)
class Pattern(Message):
    """The operators of a reduced program, and their data flow.

    Attributes:
        operators: the targets, in program order; '' for an operator that the reduction
            has replaced by a simpler one, in whose place any operator may be.
        edges: pairs of indices into ``operators``: the second reads a value of the
            first.
    """

    operators: tuple[str, ...]
    edges: tuple[tuple[int, int], ...]

    @classmethod
    def of_candidate(cls, candidate: Candidate) -> Self:
        graph = _graph_of_candidate(candidate)
        names = {name: index for index, name in enumerate(graph)}
        return cls(
            tuple(graph.nodes[name]["target"] for name in graph),
            tuple(sorted((names[a], names[b]) for a, b in graph.edges)),
        )

    def find_in(self, program: Candidate) -> frozenset[str]:
        """Return the operators of all occurrences of the pattern in a program.

        An occurrence has these targets and at least these edges. The result is empty if
        there is none, or if the pattern is too large to be searched for.
        """
        if len(self.operators) > _LARGEST or not any(self.operators):
            return frozenset()
        matcher = DiGraphMatcher(
            _graph_of_candidate(program), self._graph(), node_match=_fits
        )
        found = islice(matcher.subgraph_monomorphisms_iter(), _MOST)
        return frozenset().union(*found)

    def is_same_as(self, other: Pattern) -> bool:
        """Return whether two patterns differ only in the order of their operators."""
        return nx.is_isomorphic(self._graph(), other._graph(), node_match=_is_same)

    def _graph(self) -> nx.DiGraph[int]:
        graph: nx.DiGraph[int] = nx.DiGraph()
        for index, target in enumerate(self.operators):
            graph.add_node(index, target=target)
        graph.add_edges_from(self.edges)
        return graph


def _graph_of_candidate(candidate: Candidate) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for name in candidate.operators:
        is_replaced = name in candidate.replace
        target = "" if is_replaced else candidate.target(name)
        graph.add_node(name, target=target)
    for name in candidate.operators:
        graph.add_edges_from((above, name) for above in candidate.producers(name))
    return graph


_Attributes = dict[str, str]


def _fits(of_program: _Attributes, of_pattern: _Attributes) -> bool:
    return of_pattern["target"] in ("", of_program["target"])


def _is_same(one: _Attributes, other: _Attributes) -> bool:
    return one == other
