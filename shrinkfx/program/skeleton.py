"""The program as a networkx graph, which is all that the parent process knows of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
    Set,
)
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, TypeVar

import networkx as nx


class Role(StrEnum):
    """The role of a node in the program."""

    INPUT = "input"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    OPERATOR = "operator"
    PROJECTION = "projection"
    """``operator.getitem``: one value of an operator that returns several."""
    SIZE = "size"
    """Arithmetic on sizes: rebuilt wherever it is needed, never cut."""
    SUBGRAPH = "subgraph"
    """A branch or loop body of a higher-order operator; operands are its results."""
    SUBGRAPH_NODE = "inner"
    """A node of a subgraph, named by its path: ``body.add``."""


FEEDS = frozenset({Role.INPUT, Role.PARAMETER, Role.BUFFER, Role.CONSTANT})
"""Roles of the values that exist before the first operator."""


@dataclass(frozen=True)
class TensorType:
    """The type of a tensor: dtype, device, and sizes as text, including symbols."""

    dtype: str
    shape: tuple[str, ...]
    device: str = "cpu"


@dataclass(frozen=True)
class Node:
    """A node of the graph, with the facts that strategies may need.

    Attributes:
        value: the type of its tensor; None for tuples, sizes, and nodes without a
            value.
        operators: the number of operators that it counts as, including those inside it:
            1 for most nodes, 0 for a size or a projection.
        scope: the path of the module that called it, such as ``blocks.3.attn``.
        source: ``file.py:41`` of the user's code, or ''.
        storage: nodes with the same number share memory.
        pointwise: whether it works element by element, and broadcasts its operands.
    """

    name: str
    role: Role
    target: str = ""
    operands: tuple[str, ...] = ()
    value: TensorType | None = None
    operators: int = 0
    nbytes: int = 0
    scope: str = ""
    source: str = ""
    storage: int | None = None
    impure: bool = False
    pointwise: bool = False


@dataclass(frozen=True)
class FreeSize:
    """A dynamic size, and its values in the passing and the failing run.

    Attributes:
        symbols: the symbols that it is computed from; the size itself if it is a
            symbol.
    """

    symbols: tuple[str, ...]
    passing: int
    failing: int


class Skeleton:
    """A read-only dependency graph with an edge from each value to each of its users.

    Nodes are in program order, which is a topological order.

    Attributes:
        outputs: the values that the program returns or writes back.
        writes: pairs of such a value and the buffer that it is written into after a
            call.
        sizes: the dynamic sizes by their expressions in shapes; empty unless sizes at
            which the program passes are known.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        outputs: Iterable[str],
        *,
        symbols: Mapping[str, str] | None = None,
        original_nodes: int | None = None,
        content: str = "",
        writes: Iterable[Sequence[str]] = (),
        sizes: Mapping[str, FreeSize] = MappingProxyType({}),
    ) -> None:
        self.graph: nx.DiGraph[str] = nx.DiGraph()
        # Fetching 5,000 nodes takes 0.5 ms, but 1.3 to 2.1 ms if they are attributes in
        # the graph (benchmarks/walks.py); a search fetches each one some forty times.
        self._nodes: dict[str, Node] = {}
        self._order: dict[str, int] = {}
        for node in nodes:
            self.graph.add_node(node.name)
            self._order[node.name] = len(self._nodes)
            self._nodes[node.name] = node
            for operand in node.operands:
                if operand not in self.graph:
                    raise ValueError(f"{node.name} uses {operand} before it is there")
                self.graph.add_edge(operand, node.name)
        self.outputs = tuple(outputs)
        self.writes = tuple((value, buffer) for value, buffer in writes)
        self.symbols = dict(symbols or {})
        self.sizes = dict(sizes)
        self.content = content
        outside = [n for n in self._nodes.values() if n.role is not Role.SUBGRAPH_NODE]
        self.original_nodes = (
            len(outside) + 1 if original_nodes is None else original_nodes
        )

    def node(self, name: str) -> Node:
        return self._nodes[name]

    def __contains__(self, name: str) -> bool:
        return name in self.graph

    def order(self, name: str) -> int:
        return self._order[name]

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Sort names by program order, each once."""
        return sorted(set(names), key=self._order.__getitem__)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Every operator that may be kept or removed, in program order."""
        return tuple(n for n in self.graph if self.node(n).role is Role.OPERATOR)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        return tuple(n for n in self.graph if self.node(n).role is Role.INPUT)

    @cached_property
    def subgraphs(self) -> dict[str, list[str]]:
        """Map operators that have subgraphs to these subgraphs."""
        return {
            name: graphs
            for name in self.operators
            if (graphs := [v for v in self.node(name).operands if self._is_graph(v)])
        }

    def _is_graph(self, name: str) -> bool:
        return self.node(name).role is Role.SUBGRAPH

    def producer(self, value: str) -> str:
        """Return the node whose removal removes ``value``, e.g. getitem's operator."""
        return self._producers[value]

    @cached_property
    def _producers(self) -> dict[str, str]:
        producers: dict[str, str] = {}
        for node in self._nodes.values():
            is_projection = node.role is Role.PROJECTION
            producers[node.name] = (
                producers[node.operands[0]] if is_projection else node.name
            )
        return producers

    def projections(self, operator: str) -> list[str]:
        """List the getitems of an operator that returns several values."""
        return self._projections.get(operator, [])

    @cached_property
    def _projections(self) -> dict[str, list[str]]:
        by_node: dict[str, list[str]] = {}
        for node in self._nodes.values():
            if node.role is Role.PROJECTION:
                by_node.setdefault(node.operands[0], []).append(node.name)
        return by_node

    def values(self, operator: str) -> list[str]:
        """List the tensors that an operator returns: itself or its getitems."""
        tensors = [operator] if self.node(operator).value is not None else []
        for projection in self.projections(operator):
            tensors += self.values(projection)
        return tensors

    def values_like(self, operator: str, value: str) -> list[str]:
        """List the tensors of an operator that have the type of ``value``."""
        wanted = self.node(value).value
        return [v for v in self.values(operator) if self.node(v).value == wanted]

    @cached_property
    def digest(self) -> str:
        """Hash of graph, weights, inputs and preloads; part of each query cache key."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        return {
            "nodes": [_to_json(node) for node in self._nodes.values()],
            "outputs": list(self.outputs),
            "writes": [list(pair) for pair in self.writes],
            "symbols": self.symbols,
            "original_nodes": self.original_nodes,
            "content": self.content,
            **({"sizes": _sizes_to_json(self.sizes)} if self.sizes else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Skeleton:
        fields = dict(data)
        fields.pop("original_operators", None)  # written by an older version
        nodes = [_node_from_json(entry) for entry in fields.pop("nodes")]
        sizes = {
            name: FreeSize(tuple(entry["symbols"]), entry["passing"], entry["failing"])
            for name, entry in fields.pop("sizes", {}).items()
        }
        return cls(nodes, fields.pop("outputs"), sizes=sizes, **fields)


def _sizes_to_json(sizes: Mapping[str, FreeSize]) -> dict[str, Any]:
    return {name: asdict(size) for name, size in sizes.items()}


def _to_json(node: Node) -> dict[str, Any]:
    """Convert a node as ``asdict`` does, in a tenth of the time."""
    value = dict(vars(node.value)) if node.value else None
    return {**vars(node), "value": value}


def _node_from_json(entry: Mapping[str, Any]) -> Node:
    fields = dict(entry)
    value = fields["value"]
    if value is not None:
        fields["value"] = TensorType(
            value["dtype"], tuple(value["shape"]), value["device"]
        )
    fields["role"] = Role(fields["role"])
    fields["operands"] = tuple(fields["operands"])
    return Node(**fields)


# A graph search along edges that a function returns, which networkx lacks.
#
# The operands of a value depend on the bypasses of the candidate or on the kind of
# the value. There is no networkx graph with these edges, and building one takes
# longer than the search (``benchmarks/walks.py``).

Place = TypeVar("Place", bound=Hashable)


def reached(
    starts: Iterable[Place], step: Callable[[Place], Iterable[Place]]
) -> list[Place]:
    """List the places reachable from ``starts`` in any number of steps, each once.

    The result includes the starts, and is in the order of a depth-first search.
    """
    visited: dict[Place, None] = {}
    stack = list(starts)
    while stack:
        place = stack.pop()
        if place not in visited:
            visited[place] = None
            stack += step(place)
    return list(visited)


# The nodes inside operators: those of branches and loop bodies.
#
# They cannot be kept or dropped, because no value can be fed into a body from
# outside. But such an operator can be bypassed like any other, and nodes without
# users then disappear.

Resolve = Callable[[str], str]
"""A function that returns the value which the users of a value get after bypasses."""


def subgraph_nodes(
    program: Skeleton, keep: Set[str], resolve: Resolve
) -> tuple[str, ...]:
    """List the nodes in subgraphs of kept operators that have an effect, in order."""
    used = _used(program, keep, resolve)
    inner = (name for name in used if program.node(name).role is Role.SUBGRAPH_NODE)
    return tuple(program.in_order(inner))


def values_in_subgraphs(
    program: Skeleton, keep: Set[str], resolve: Resolve
) -> set[str]:
    """Collect the values that subgraphs read or return, including bypassed ones."""
    used = _used(program, keep, resolve)
    return {value for name in used for value in program.node(name).operands}


def returns_an_input(
    program: Skeleton, resolve: Resolve, node: str, operand: str
) -> bool:
    """Return whether a subgraph would return its own input without ``node``.

    Export refuses this, like any result that shares memory with an input.
    """
    source = program.node(resolve(operand))
    if source.role is not Role.SUBGRAPH_NODE or source.operands or source.operators:
        return False
    returned = map(resolve, program.node(graph_of(node)).operands)
    return node in returned


def count_bypassed(
    program: Skeleton, keep: Set[str], bypassed: Set[str], resolve: Resolve
) -> int:
    """Count the operators that bypasses have removed from subgraphs."""
    if not any(map(is_subgraph_node, bypassed)):
        return 0
    before = _used(program, keep, lambda value: value)
    after = _used(program, keep, resolve)
    return sum(program.node(name).operators for name in before - after)


def is_subgraph_node(name: str) -> bool:
    """Return whether a name is that of a node in a subgraph."""
    return "." in name


def graph_of(name: str) -> str:
    """Return the name of the subgraph of a node; '' for the program's own nodes."""
    return name.rpartition(".")[0]


def _used(program: Skeleton, keep: Set[str], resolve: Resolve) -> set[str]:
    """Collect the subgraphs of kept operators, and the nodes that they need."""
    carriers = program.subgraphs.keys() & keep
    graphs = [graph for name in carriers for graph in program.subgraphs[name]]
    return set(reached(graphs, lambda v: map(resolve, program.node(v).operands)))


# Graph queries for strategies.
#
# They concern the operators of the input program; operators that a candidate bypassed
# are still there. Every result contains ``names``.


def upstream(program: Skeleton, names: Iterable[str], hops: int) -> frozenset[str]:
    """Add the producers of operators, up to ``hops`` steps upstream.

    The computation of an index or a size is no step; it is added at any distance.
    """
    edge = visited = _with_indices(program, names)
    for _ in range(hops):
        above = {p for name in edge for p in _reads(program, name)}
        edge = _with_indices(program, above - visited)
        visited = visited | edge
    return frozenset(visited)


def ancestors(program: Skeleton, names: Iterable[str]) -> frozenset[str]:
    """Add all ancestors of operators."""
    # A single search: calling nx.ancestors for each of 24 takes 90 ms, and this takes
    # 5.
    above = nx.bfs_layers(program.graph.reverse(copy=False), list(names))
    return frozenset(chain(*above)).intersection(program.operators)


def with_users(program: Skeleton, names: Collection[str]) -> frozenset[str]:
    """Add the operators that read a value of these operators."""
    users = (n for n in program.operators if _reads(program, n).keys() & names)
    return frozenset(names).union(users)


def _with_indices(program: Skeleton, names: Iterable[str]) -> set[str]:
    """Add the operators that compute indices and sizes which these operators read."""

    def indices(name: str) -> list[str]:
        return [p for p, is_index in _reads(program, name).items() if is_index]

    return set(reached(names, indices))


def _reads(program: Skeleton, name: str) -> dict[str, bool]:
    """Map the operators that one reads to whether it reads only indices or sizes."""

    def through_sizes(read: tuple[str, bool]) -> list[tuple[str, bool]]:
        producer = program.node(program.producer(read[0]))
        is_size = producer.role is Role.SIZE
        return [(value, True) for value in producer.operands] if is_size else []

    operators: dict[str, bool] = {}
    values = [(v, _is_index(program, v)) for v in program.node(name).operands]
    for value, is_index in reached(values, through_sizes):
        producer = program.producer(value)
        if program.node(producer).role is Role.OPERATOR:
            operators[producer] = is_index and operators.get(producer, True)
    return operators


def _is_index(program: Skeleton, name: str) -> bool:
    """Return whether a value is a number, or a tensor of integers."""
    value = program.node(name).value
    return value is None or "int" in value.dtype
