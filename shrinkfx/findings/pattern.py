"""The pattern of a bug: the operators of its reduced program, and their data flow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Self

import networkx as nx
from networkx.algorithms.isomorphism import DiGraphMatcher, categorical_node_match

from shrinkfx.program.candidate import Candidate
from shrinkfx.protocol.record import Message

_LARGEST = 12
"""Maximum number of operators of a pattern that is searched for.

The time of the search grows exponentially with this number, and a reduced program with
more operators is rarely a part of another model.
"""

_MOST = 1000
"""Maximum number of occurrences of a pattern in a program that are looked at."""

_SAME_TARGET = categorical_node_match("target", "")


@dataclass(frozen=True)
class Pattern(Message):
    """The operators of a reduced program, and their data flow.

    Attributes:
        operators: the targets, in program order; '' for an operator that the reduction
            has replaced by a simpler one.
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

    @property
    def is_searchable(self) -> bool:
        """Whether the operators of other programs can be compared with it."""
        return 0 < len(self.operators) <= _LARGEST and all(self.operators)

    def find_in(self, program: Candidate) -> frozenset[str]:
        """Return the operators of all occurrences of the pattern in a program.

        An occurrence has these targets and at least these edges. Parts of the pattern
        without an edge between them may occur anywhere. The result is empty if a part
        does not occur, or if the pattern is not searchable.
        """
        whole = _graph_of_candidate(program)
        names: dict[str, str] = nx.get_node_attributes(whole, "target")
        if not self.is_searchable or Counter(self.operators) - Counter(names.values()):
            return frozenset()
        alike = [name for name, target in names.items() if target in self.operators]
        found: set[str] = set()
        pattern = self._graph()
        for part in nx.weakly_connected_components(pattern):
            matcher = DiGraphMatcher(
                whole.subgraph(alike), pattern.subgraph(part), node_match=_SAME_TARGET
            )
            occurrences = [*islice(matcher.subgraph_monomorphisms_iter(), _MOST)]
            if not occurrences:
                return frozenset()
            found.update(*occurrences)
        return frozenset(found)

    def is_same_as(self, other: Pattern) -> bool:
        """Return whether two patterns differ only in the order of their operators.

        Patterns without a single known operator are never the same.
        """
        return any(self.operators) and nx.is_isomorphic(
            self._graph(), other._graph(), node_match=_SAME_TARGET
        )

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
        graph.add_node(name, target="" if is_replaced else candidate.target(name))
    for name in candidate.operators:
        graph.add_edges_from((above, name) for above in candidate.producers(name))
    return graph
