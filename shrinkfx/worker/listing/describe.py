"""Conversion of a rebuilt candidate to a printed program, as data."""

from __future__ import annotations

import ast
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill
from shrinkfx.program.listing.printed_program import (
    MAIN,
    Block,
    Dim,
    InputOrWeight,
    PrintedProgram,
    Run,
    Statement,
)
from shrinkfx.program.listing.tensor_specs import (
    LISTED,
    Constant,
    Counted,
    Initializer,
    Opaque,
    Part,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
    write_tensor_spec,
)
from shrinkfx.program.record import Number
from shrinkfx.protocol.answers import Listed
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.eager.intermediates import compact, restride, span
from shrinkfx.worker.graph.describe import dynamic_dims
from shrinkfx.worker.graph.rebuild import RebuiltCandidate
from shrinkfx.worker.graph.symbols import CannotRebuild
from shrinkfx.worker.loading.script_objects import script_object
from shrinkfx.worker.printing.graph import (
    Unprintable,
    callee,
    draw_alike,
    memory_of,
    unpack,
)
from shrinkfx.worker.printing.module import (
    attribute_of,
    export_source,
    is_identical,
    print_program,
)


@dataclass(frozen=True)
class DescribedProgram:
    """A printed program, and the values that it refers to by key.

    Attributes:
        seeded: a rewrite that draws values from a seed, where no simple initializer
            makes the exact values.
        saved: the values of inputs by key; the values of weights stay in the exported
            program.
    """

    listing: PrintedProgram
    seeded: Rewrite
    saved: Mapping[str, torch.Tensor]

    def save_values(self, data: str) -> Listed:
        """Save the values, if there are any, to the file ``data``; return a message."""
        if self.saved:
            torch.save(dict(self.saved), data)
        return Listed(self.listing, self.seeded, data if self.saved else "")


def describe(built: RebuiltCandidate) -> DescribedProgram:
    """Convert a candidate to statements, and its inputs and weights to tensor specs.

    Raises:
        Unprintable, CannotRebuild: the candidate is not valid, or has no source form.
    """
    loose = export_source(built)[1] if dynamic_dims(built.exported) else frozenset()
    values = _Values()
    printed = print_program(built, loose=loose, write=values.note)
    entries = tuple(values.weight(each) for each in printed.weights)
    entries += values.inputs(printed)
    dims = tuple(map(_dim, printed.dims))
    try:
        listing = PrintedProgram(_blocks(printed, built), entries, dims).normalised()
    except (SyntaxError, ValueError, InvalidEdit) as error:
        raise Unprintable(f"it is not valid Python: {error}") from error
    remaining = {each.name for each in listing.given}
    seeded = (change for change in values.seeded if change.name in remaining)
    return DescribedProgram(listing, Rewrite(tuple(seeded)), values.saved)


class _Values:
    """The inputs and weights of a program, collected while it is printed.

    Attributes:
        saved: the values of inputs that have no simple initializer.
        seeded: seeded initializers that may replace long exact values.
    """

    def __init__(self) -> None:
        self._noted: list[Any] = []
        self.saved: dict[str, torch.Tensor] = {}
        self.seeded: list[Refill] = []

    def note(self, value: Any, device: str) -> Expression:
        """Store a value, and print its number as a placeholder."""
        self._noted.append(value)
        number = str(len(self._noted) - 1)
        return Expression(number, number)

    def weight(self, printed: Weight) -> InputOrWeight:
        """Describe a weight."""
        name, kind, text = printed.attribute, printed.kind, printed.text.exact
        if kind in ("script_object", "saved_object"):
            if not text:
                raise Unprintable(f"{name}, which is too large for a script")
            recipe = TensorSpec((), "", Opaque(text))
        else:
            value = self._noted[int(text)]
            recipe = make_exact_spec(value, key_of_weight(name))
            self._draw(name, recipe, value, None)
        return InputOrWeight(name, kind, ((Run.EXAMPLE, recipe),))

    def inputs(self, printed: Source) -> tuple[InputOrWeight, ...]:
        """Describe the inputs in all runs, with their dynamic dims."""
        shapes = ast.parse(printed.dynamic_shapes, mode="eval").body
        dims = shapes.elts if isinstance(shapes, ast.Tuple) else itertools.repeat(None)
        pairs = zip(printed.inputs, dims, strict=False)
        return tuple(self._input(each, _open_dims(spec)) for each, spec in pairs)

    def _input(
        self, printed: Input, dims: tuple[tuple[int, str], ...]
    ) -> InputOrWeight:
        texts = {
            Run.EXAMPLE: printed.example,
            Run.PASSING: printed.passing,
            Run.FAILING: printed.failing,
        }
        values = {
            r: self._noted[int(t.exact)] for r, t in texts.items() if t is not None
        }
        recipes = []
        for run, value in values.items():
            if run is not Run.EXAMPLE and is_identical(value, values[Run.EXAMPLE]):
                continue
            key = f"{run}_{printed.name}"
            recipe = make_exact_spec(value, key)
            recipes.append((run, recipe))
            self._draw(printed.name, recipe, value, run)
            if isinstance(recipe.fill, Saved):
                self.saved[key] = compact(value.detach())
        return InputOrWeight(printed.name, "input", tuple(recipes), dims)

    def _draw(self, name: str, recipe: TensorSpec, value: Any, run: Run | None) -> None:
        if fill := choose_seeded_initializer(value, recipe):
            self.seeded.append(Refill(name, fill, run))


def _open_dims(spec: ast.expr | None) -> tuple[tuple[int, str], ...]:
    """Read the dynamic dims of an input from its ``dynamic_shapes`` entry."""
    if not isinstance(spec, ast.Dict):
        return ()
    pairs = zip(spec.keys, spec.values, strict=True)
    return tuple((ast.literal_eval(k), ast.unparse(expr)) for k, expr in pairs if k)


def _dim(line: str) -> Dim:
    """Parse the declaration of a dim."""
    (tree,) = ast.parse(line).body
    assert isinstance(tree, ast.Assign)
    assert isinstance(tree.value, ast.Call)
    span = {word.arg: ast.literal_eval(word.value) for word in tree.value.keywords}
    return Dim(ast.unparse(tree.targets[0]), span.get("min", 0), span.get("max"))


def _blocks(printed: Source, built: RebuiltCandidate) -> tuple[Block, ...]:
    """Parse the statements, each block after the blocks that it calls."""
    effectful = set(_list_effectful_operators(built.exported.graph_module))
    inner = [_read_class(text, effectful) for text in printed.branches]
    arguments = tuple(each.name for each in printed.inputs)
    body = _statements(printed.body, effectful)
    main = Block(MAIN, arguments, tuple(printed.members.items()), body)
    return (*inner, main)


def _read_class(text: str, effectful: set[str]) -> Block:
    """Parse the class of a branch or loop body."""
    (tree,) = ast.parse(text).body
    assert isinstance(tree, ast.ClassDef)
    members = [
        (line.targets[0].attr, ast.unparse(line.value).removesuffix("()"))
        for line in ast.walk(tree.body[0])
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Attribute)
    ]
    forward = tree.body[-1]
    assert isinstance(forward, ast.FunctionDef)
    arguments = tuple(each.arg for each in forward.args.args[1:])
    lines = text.splitlines()[forward.lineno :]
    body = _statements(map(str.strip, lines), effectful)
    return Block(tree.name, arguments, tuple(members), body)


def _statements(lines: Iterable[str], effectful: set[str]) -> tuple[Statement, ...]:
    read = map(Statement.parse_line, lines)
    return tuple(
        replace(
            line,
            origin=line.origin if line.is_operator else "",
            acts=_acts(line, effectful),
        )
        for line in read
    )


def _acts(line: Statement, effectful: set[str]) -> bool:
    """Return whether a statement must stay even if nothing reads its result.

    Statements without a result stay in any case.
    """
    return line.yields and (line.callee in effectful or line.callee.startswith("self."))


def _list_effectful_operators(module: fx.GraphModule) -> Iterator[str]:
    """List the operators that mutate an argument, or return nothing."""
    for node in module.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        inner = getattr(module, str(node.target), None)
        if schema is not None and (schema.is_mutable or not schema.returns):
            yield callee(node.target)
        elif node.op == "get_attr" and isinstance(inner, fx.GraphModule):
            yield from _list_effectful_operators(inner)


_TINY = 8
"""Up to this many elements, a list is as short as a seeded initializer."""

_SAMPLE = 4096
"""Number of elements that show whether most elements of a tensor are equal."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by item size, to compare elements bit for bit."""


def make_exact_spec(value: Any, key: str) -> TensorSpec:
    """Describe a tensor, or another argument of a program, by its exact values.

    Args:
        key: the key of the values, if no shorter initializer makes them.
    """
    if not isinstance(value, torch.Tensor):
        return TensorSpec((), "", Opaque(repr(value)))
    value = value.detach()
    known = TensorSpec(
        shape=tuple(value.shape),
        dtype=_dtype(value),
        fill=Saved(key),
        stride=None if value.is_contiguous() else tuple(value.stride()),
        device=str(value.device),
    )
    for fill in _plain_fills(value):
        recipe = TensorSpec(known.shape, known.dtype, fill, known.stride, known.device)
        try:
            made = make_from_spec(recipe, {})
        except (RuntimeError, OverflowError, TypeError):  # not for this dtype
            continue
        if made.dtype == value.dtype and _same_values(made, value):
            return recipe
    return known


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare bit for bit, except that all NaNs are equal."""
    return one.shape == other.shape and torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    found = memory_of(tensor).reshape(-1, tensor.element_size())
    if tensor.is_floating_point():
        known = tensor.double() if tensor.element_size() == 1 else tensor
        found[known.flatten().isnan()] = 0xFF  # float8 has few operators
    return found


def saved_weights(exported: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return the weights that a program holds, by the keys of tensor specs."""
    stores = {**exported.constants, **exported.state_dict}
    return {
        key_of_weight(attribute_of(target)): value.detach()
        for target, value in stores.items()
        if isinstance(value, torch.Tensor)
    }


def key_of_weight(attribute: str) -> str:
    """Return the key of a weight in tensor specs."""
    return f"weight_{attribute}"


def choose_seeded_initializer(value: Any, recipe: TensorSpec) -> Seeded | None:
    """Return a seeded initializer of the same range; None if a list is as short."""
    long = isinstance(recipe.fill, (Sparse, Saved)) and recipe.span > _TINY
    if not long or not isinstance(value, torch.Tensor):
        return None
    return draw_alike(value.detach().cpu())


def make_from_spec(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor], device: str = ""
) -> Any:
    """Make the tensor of a spec, as its source text does.

    Args:
        device: the target device, if it differs from the spec's.

    Raises:
        CannotRebuild: the values are not saved, or fewer are saved.
    """
    if isinstance(recipe.fill, Saved):
        if recipe.fill.key not in saved:
            raise CannotRebuild(f"no values are saved as {recipe.fill.key}")
        value = saved[recipe.fill.key]
        if isinstance(recipe.fill, Part):
            value = _fill_around_parts(recipe.fill, value)
        return _cut(recipe, value).to(device or recipe.device)
    scope = {"torch": torch, "unpack": unpack, "script_object": script_object}
    return eval(write_tensor_spec(recipe, device), scope)


def has_integer_dtype(recipe: TensorSpec) -> bool:
    """Return whether a spec has an integer or bool dtype."""
    dtype = getattr(torch, recipe.dtype)
    return not dtype.is_floating_point and not dtype.is_complex


def make_few_integers(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """Make a tensor of whole numbers, if they are few, known, and not seeded.

    Returns:
        None for other specs, and for more than ``_SAMPLE`` elements.
    """
    if isinstance(recipe.fill, (Opaque, Seeded)) or recipe.device != "cpu":
        return None
    if not has_integer_dtype(recipe) or recipe.span > _SAMPLE:
        return None
    try:
        made: torch.Tensor = make_from_spec(recipe, saved)
    except (CannotRebuild, RuntimeError, OverflowError, TypeError):
        return None  # reported where the tensor is made
    return made


def list_saved_part(
    recipe: TensorSpec, saved: Mapping[str, torch.Tensor]
) -> TensorSpec:
    """Write out the values of a partly saved tensor, if they are few."""
    if not isinstance(recipe.fill, Part) or recipe.fill.key not in saved:
        return recipe
    try:
        exact = make_exact_spec(make_from_spec(recipe, saved, "cpu"), recipe.fill.key)
    except (CannotRebuild, RuntimeError):  # no such part
        return recipe
    known = not isinstance(exact.fill, Saved) and exact.stride == recipe.stride
    return replace(recipe, fill=exact.fill) if known else recipe


def _fill_around_parts(fill: Part, value: torch.Tensor) -> torch.Tensor:
    """Replace all values outside of the saved parts by the base number.

    Raises:
        CannotRebuild: fewer values are saved.
    """
    flat = _cut(TensorSpec(fill.shape, _dtype(value), fill), value).flatten()
    filled = torch.full_like(flat, fill.base)
    for start, stop in fill.parts:
        filled[start:stop] = flat[start:stop]
    return filled.reshape(fill.shape)


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _cut(recipe: TensorSpec, value: torch.Tensor) -> torch.Tensor:
    """Take the first elements of each dim, in the layout of the spec.

    A tensor that already fits the spec is not copied, because it may be gigabytes.

    Raises:
        CannotRebuild: fewer values are saved.
    """
    fits = len(recipe.shape) == value.dim()
    cut = value[tuple(map(slice, recipe.shape))] if fits else value
    if cut.shape != recipe.shape:
        known = f"{tuple(value.shape)} are saved and not {recipe.shape}"
        raise CannotRebuild(f"the values of {known}")
    dtype: torch.dtype = getattr(torch, recipe.dtype)
    stride = None if value.is_contiguous() else value.stride()
    if (cut.shape, dtype, recipe.stride) == (value.shape, value.dtype, stride):
        return value.detach()
    cut = cut.detach().to(dtype)
    if recipe.stride is None:
        return cut.clone(memory_format=torch.contiguous_format)
    return restride(cut, recipe.stride)


def _plain_fills(value: torch.Tensor) -> Iterator[Initializer]:
    """Yield initializers that may make the values, the simplest first."""
    if value.numel() == 0:
        yield Constant(0)
        return
    first, last = (_number(value[(at,) * value.dim()]) for at in (0, -1))
    if first is not None and _is_same_number(first, last):
        yield Constant(first)
    memory = value.as_strided((span(value),), (1,)).cpu()
    head = memory[:2].to(torch.float64 if not value.is_complex() else memory.dtype)
    if memory.numel() > 1 and head.tolist() == [0, 1]:
        yield Counted()
    if fill := _sparse(memory):
        yield fill


def _sparse(memory: torch.Tensor) -> Sparse | None:
    """Return the most common number and the exceptions to it, if these are few."""
    listed = memory.numel() <= LISTED
    places = list(range(memory.numel())) if listed else _unusual(memory)
    if places is None:
        return None
    numbers = [(place, _number(memory[place])) for place in places]
    if listed:
        base = _most([number for _, number in numbers])
    else:
        usual = (place for place in range(LISTED + 1) if place not in places)
        base = _number(memory[next(usual)])
    exceptions = [(place, n) for place, n in numbers if not _is_same_number(n, base)]
    if base is None or any(n is None for _, n in exceptions):
        return None
    return Sparse(base, tuple((place, n) for place, n in exceptions if n is not None))


def _unusual(memory: torch.Tensor) -> list[int] | None:
    """List the elements that differ from most others; None if there are many."""
    kind = _INTEGERS.get(memory.element_size())
    if kind is None:
        return None
    integers = memory.view(kind)
    sample = integers[:_SAMPLE]
    usual = sample.mode().values
    for part in (sample, integers):
        found = (part != usual).nonzero().flatten()
        if found.numel() > LISTED:
            return None
    places: list[int] = found.tolist()
    return places


def _most(numbers: Sequence[Number | None]) -> Number | None:
    """Return the most common number.

    Numbers are compared as text, because 0.0 equals -0.0, and NaN does not equal NaN.
    """
    by_text = {repr(number): number for number in numbers}
    return by_text[Counter(map(repr, numbers)).most_common(1)[0][0]]


def _is_same_number(number: Number | None, other: Number | None) -> bool:
    return repr(number) == repr(other)


def _number(one: torch.Tensor) -> Number | None:
    """Read an element; None for a complex number with an infinite or NaN part."""
    number: Number = one.flatten().tolist()[0]
    if isinstance(number, complex):
        finite = math.isfinite(number.real) and math.isfinite(number.imag)
        return number if finite else None
    return math.nan if number != number else number  # equal to itself
