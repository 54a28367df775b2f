"""Preload: a compiler that takes no time, with failures planted by rule.

Replaces the two public functions of ``torch._inductor`` that ``aoti/backend.py``
and every repro call. "Compiling" saves the exported program, "running" interprets
it in eager; everything around that is real. The rules are read from the file that
``SHRINKFX_PLANTS`` names, at each compile: a list of objects as ``Plant`` writes
them. Without the variable nothing is planted.
"""

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import fx

Plant = dict[str, Any]

DICE = random.SystemRandom()
"""Really random: no seed of torch's or of Python's has a say."""


class LoweringException(Exception):
    """Named as Inductor's own."""


def compile_and_package(
    exported: Any, *, package_path: Any = None, inductor_configs: Any = None
) -> str:
    """Save the program; a plant may refuse it, as a compiler would."""
    path = package_path or "model.pt2"
    for node in exported.graph.nodes:
        for plant in planted(node):
            if plant["how"] == "refuse" and strikes(plant):
                reason = f"{plant['text']}\n  target: {node.target}"
                raise LoweringException(reason)
    torch.export.save(exported, path)
    return str(path)


def load_package(path: Any) -> Callable[..., Any]:
    """Return the program as a callable that interprets it."""
    exported = torch.export.load(path)
    module = exported.module(check_guards=False)

    def compiled(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return Planted(module).run(*args, **kwargs)

    return compiled


class Planted(fx.Interpreter):
    """Eager, but for the planted operators."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        for plant in planted(n):
            if plant["how"] != "refuse" and strikes(plant):
                value = HOW[plant["how"]](value, plant["text"])
        return value


def planted(node: fx.Node) -> list[Plant]:
    """List the plants whose rule a node fits."""
    if node.op != "call_function":
        return []
    return [plant for plant in plants() if fits(node, plant)]


def plants() -> list[Plant]:
    path = os.environ.get("SHRINKFX_PLANTS")
    return json.loads(Path(path).read_text()) if path else []


def fits(node: fx.Node, plant: Plant) -> bool:
    """Tell whether a node is the planted operator, in the planted surroundings."""
    if str(node.target) != plant["at"]:
        return False
    others = {str(n.target) for n in node.graph.nodes}
    if not others.issuperset(plant["needs"]) or others & set(plant["unless"]):
        return False
    fed = [n for n in node.all_input_nodes if n.op == "placeholder"]
    return bool(fed) or not plant["cut"]


def strikes(plant: Plant) -> bool:
    return DICE.random() < float(plant["rate"])


def raise_error(value: Any, text: str) -> Any:
    raise RuntimeError(text)


def die(value: Any, text: str) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def abort(value: Any, text: str) -> Any:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
    os.abort()


def add_one(value: Any, text: str) -> Any:
    return value + 1


def widen(value: Any, text: str) -> Any:
    return value.double()


def divide_by_zero(value: Any, text: str) -> Any:
    return value / 0


HOW = {
    "raise": raise_error,
    "die": die,
    "abort": abort,
    "add one": add_one,
    "widen": widen,
    "divide by zero": divide_by_zero,
}

vars(torch._inductor).update(
    aoti_compile_and_package=compile_and_package, aoti_load_package=load_package
)
