"""Convert a program to its functional form, in which any subset of nodes is valid."""

from __future__ import annotations

import sympy
import torch
from torch.export import ExportedProgram

from shrinkfx.worker.private_api.graph_api import ValueRanges, int_oo


def functionalise(original: ExportedProgram) -> ExportedProgram | None:
    """Remove in-place operators, because candidates cannot be cut around them.

    Returns:
        None if that fails or fixes dynamic dims; then ``original`` may have changed and
        must be read again.
    """
    dynamic = _dynamic(original)
    try:
        with torch.no_grad():
            functional: ExportedProgram = original.run_decompositions({})
    except Exception as error:  # noqa: BLE001 - a decomposition may raise anything
        print(f"shrinkfx: no functional form: {error}", flush=True)
        return None
    if _dynamic(functional) != dynamic:
        # A write into one result of unbind or split causes that (torch 2.13).
        print("shrinkfx: no functional form: it fixes dynamic dims", flush=True)
        return None
    if functional.graph_signature.input_tokens:
        # Tokens keep the calls of script objects' methods in order.
        print("shrinkfx: no functional form: it needs tokens", flush=True)
        return None
    return functional


def _dynamic(program: ExportedProgram) -> list[bool]:
    """Return for each dim of each input, in order, whether it is dynamic."""
    values = (n.meta["val"] for n in program.graph.nodes if n.op == "placeholder")
    sizes = (size for v in values for size in getattr(v, "shape", ()))
    return [
        isinstance(size, torch.SymInt) and bool(size.node.expr.free_symbols)
        for size in sizes
    ]


def add_symbol_values(program: ExportedProgram) -> None:
    """Add the values of symbols that no dim consists of alone, which loading omits.

    A symbol may occur only in sizes like ``2*s0 + 1``, or only in strides, for which no
    range is stored. Decomposition fails where it needs the symbol's own value or range,
    and so does Inductor since torch 2.14: ``RuntimeError: ('unexpected None!', 2*s0 +
    1)``. Before 2.14, loading registered such sizes as if they were symbols.
    """
    try:
        _add_symbol_values(program)
    except Exception as error:  # noqa: BLE001 - most programs compile without this
        print(f"shrinkfx: no values of symbols: {error!r}", flush=True)


def _add_symbol_values(program: ExportedProgram) -> None:
    metadata = (node.meta.get("val") for node in program.graph.nodes)
    shapes = (size for v in metadata for size in getattr(v, "shape", ()))
    sizes = [size.node for size in shapes if isinstance(size, torch.SymInt)]
    if not sizes:
        return
    env = sizes[0].shape_env
    assert env is not None
    numbers = dict(env.backed_var_to_val)
    numbers |= {size.expr: size.hint for size in sizes if size.has_hint()}
    for size, number in numbers.items():
        unknown = size.free_symbols - set(env.backed_var_to_val)
        if len(unknown) == 1:
            (symbol,) = unknown
            solutions = sympy.solve(size - number, symbol)
            if len(solutions) == 1:
                env.backed_var_to_val[symbol] = solutions[0]
    for symbol in env.backed_var_to_val:
        if symbol.is_Symbol:
            env.var_to_range.setdefault(symbol, ValueRanges(0, int_oo))
    for computed in [s for s in env.var_to_range if not s.is_Symbol]:
        del env.var_to_range[computed]
