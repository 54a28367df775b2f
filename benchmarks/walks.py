"""Walks over a program, and what could do instead: ``python benchmarks/walks.py``.

Prints CPU-milliseconds of each on a program of ``synthetic.py``, the best of several
runs: what the comments beside these walks say. Both give the same.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from synthetic import Blame, Needles, make_case  # noqa: E402

from shrinkfx.program.candidate import Candidate  # noqa: E402
from shrinkfx.program.skeleton import (  # noqa: E402
    Node,
    Role,
    Skeleton,
    ancestors,
    reached,
)
from shrinkfx.program.view import View  # noqa: E402

EXIT = ""
"""Reads all that is returned."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operators", type=int, default=5000, metavar="N")
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    options = parser.parse_args()
    case = make_case(0, options.operators, 8, Needles.NEAR, Blame.GOOD)
    program, whole = case.program, Candidate.from_skeleton(case.program)
    nx.set_node_attributes(
        program.graph, {n: program.node(n) for n in program.graph}, _NODE
    )
    rows: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "nodes": (lambda: nodes(program), lambda: attributes(program)),
        "producers": (lambda: producers(whole), lambda: by_reached(whole)),
        "ancestors": (
            lambda: ancestors(program, case.suspects),
            lambda: by_each(program, case.suspects),
        ),
        "slices": (lambda: View(whole).slices(), lambda: by_dominators(whole)),
    }
    print(f"{'':12}{'used':>8}{'instead':>8}")
    for name, (used, instead) in rows.items():
        if used() != instead():
            raise AssertionError(f"{name} differ")
        took = (cpu_ms(walk, options.runs) for walk in (used, instead))
        print(f"{name:12}" + "".join(f"{ms:8.1f}" for ms in took))


def cpu_ms(walk: Callable[[], object], runs: int) -> float:
    """Time a walk; the best run is the one that others disturbed least."""
    best = float("inf")
    for _ in range(runs):
        began = time.process_time()
        walk()
        best = min(best, time.process_time() - began)
    return 1e3 * best


_NODE = "node"


def nodes(program: Skeleton) -> list[Node]:
    return [program.node(name) for name in program.graph]


def attributes(program: Skeleton) -> list[Node]:
    return [program.graph.nodes[name][_NODE] for name in program.graph]


def producers(candidate: Candidate) -> list[set[str]]:
    return [candidate.producers(name) for name in candidate.operators]


def by_reached(candidate: Candidate) -> list[set[str]]:
    """Find the producers of each operator with the helper for all other walks."""
    program = candidate.skeleton

    def above(value: str) -> Iterable[str]:
        node = program.node(program.producer(value))
        return node.operands if node.role is Role.SIZE else ()

    found = (reached(candidate.operands(name), above) for name in candidate.operators)
    return [{*map(program.producer, v)} & candidate.keep for v in found]


def by_each(program: Skeleton, names: Iterable[str]) -> frozenset[str]:
    """Find what operators are computed from, for one after the other."""
    above = frozenset(names).union(*(nx.ancestors(program.graph, n) for n in names))
    return above.intersection(program.operators)


def by_dominators(candidate: Candidate) -> list[frozenset[str]]:
    """Find what serves one sink alone as what that dominates, seen from the outputs."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_edges_from((EXIT, sink) for sink in candidate.sinks)
    graph.add_edges_from(
        (name, above)
        for name in candidate.operators
        for above in candidate.producers(name)
    )
    tree: nx.DiGraph[str] = nx.DiGraph()
    tree.add_nodes_from(candidate.sinks)
    found = nx.immediate_dominators(graph, EXIT).items()
    tree.add_edges_from((by, name) for name, by in found if by and name != EXIT)
    return [frozenset({sink, *nx.descendants(tree, sink)}) for sink in candidate.sinks]


if __name__ == "__main__":
    main()
