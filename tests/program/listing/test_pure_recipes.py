"""Recipes: what they make, as data and as Python."""

from __future__ import annotations

import ast
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.tensor_specs import (
    LISTED,
    Constant,
    Counted,
    Initializer,
    Opaque,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
    write_tensor_spec,
)
from shrinkfx.program.record import Number

REALS = st.floats() | st.integers(-(2**63), 2**63) | st.booleans()
NUMBERS: st.SearchStrategy[Number] = REALS | st.complex_numbers()
ELEMENTS = st.dictionaries(st.integers(0, 200), NUMBERS, min_size=1, max_size=5)
FILLS: st.SearchStrategy[Initializer] = st.one_of(
    st.builds(Constant, NUMBERS),
    st.just(Counted()),
    st.builds(Seeded, st.sampled_from(["rand", "randn"])),
    st.builds(Seeded, st.just("randint"), st.integers(-3, 0), st.integers(1, 9)),
    st.builds(Sparse, NUMBERS, ELEMENTS.map(lambda e: tuple(sorted(e.items())))),
    st.builds(Saved, st.sampled_from(["example_x", "weight_w"])),
    st.builds(Opaque, st.just("torch.classes.a.B()")),
)
DTYPES = st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64"])


@st.composite
def recipes(
    draw: st.DrawFn, fills: st.SearchStrategy[Initializer] = FILLS
) -> TensorSpec:
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=3)))
    steps = st.lists(st.integers(0, 12), min_size=len(shape), max_size=len(shape)).map(
        tuple
    )
    stride = draw(st.none() | steps)
    return TensorSpec(shape, draw(DTYPES), Counted(), stride).filled(draw(fills))


@given(recipe=recipes())
def test_tensor_spec_round_trips_through_json(recipe: TensorSpec) -> None:
    text = json.dumps(recipe.to_json(), allow_nan=False)
    again = TensorSpec.from_json(json.loads(text))
    assert json.dumps(again.to_json(), allow_nan=False) == text
    assert repr(again) == repr(recipe)


def test_tensor_specs_with_nan_read_from_json_are_equal() -> None:
    held = Constant(math.nan), Sparse(math.nan, ((3, math.nan),))
    for fill in held:
        data = json.loads(json.dumps(TensorSpec((4,), "float32", fill).to_json()))
        assert TensorSpec.from_json(data) == TensorSpec.from_json(data)


@given(recipe=recipes())
def test_written_tensor_spec_is_an_expression(recipe: TensorSpec) -> None:
    assert ast.parse(write_tensor_spec(recipe), mode="eval")


VALUES = st.builds(Constant, NUMBERS) | st.builds(
    Sparse, NUMBERS, ELEMENTS.map(lambda e: tuple(sorted(e.items())))
)


@given(recipe=recipes(VALUES))
def test_written_tensor_spec_evaluates_to_exact_values(recipe: TensorSpec) -> None:
    """Read by a torch that is made of lists."""
    held = eval(write_tensor_spec(recipe), {"torch": _Lists})
    expected: list[Number] = []
    match recipe.fill:
        case Constant(value):
            expected = [value] * recipe.span
        case Sparse(base, elements):
            expected = [base] * recipe.span
            for place, value in elements:
                expected[place] = value
    assert list(map(_comparable, held.flat)) == list(map(_comparable, expected))


def _comparable(number: Any) -> str:
    return repr(complex(number))


class _List(list[Any]):
    @property
    def flat(self) -> list[Any]:
        return [x for item in self for x in (item.flat if _is_list(item) else [item])]

    def as_strided(self, shape: object, stride: object) -> _List:
        return self

    def put_(self, places: _List, values: _List) -> _List:
        flat = _List(self.flat)
        for place, value in zip(places, values, strict=True):
            flat[place] = value
        return flat


def _is_list(item: object) -> bool:
    return isinstance(item, _List)


class _Lists:
    """What a recipe's text calls, for constants."""

    float32 = bfloat16 = int64 = bool = complex64 = None

    @staticmethod
    def full(shape: tuple[int, ...], value: Number, dtype: None) -> _List:
        return _List([value] * math.prod(shape))

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: None = None) -> _List:
        return cls.full(shape, 0, None)

    @classmethod
    def ones(cls, shape: tuple[int, ...], dtype: None = None) -> _List:
        return cls.full(shape, 1, None)

    @classmethod
    def tensor(cls, values: Any, dtype: None = None) -> _List:
        nested = values if isinstance(values, list) else [values]
        return _List(cls.tensor(v) if isinstance(v, list) else v for v in nested)


@pytest.mark.parametrize(
    ("recipe", "text"),
    [
        (TensorSpec((2, 3), "float32", Constant(1.0)), "torch.ones((2, 3))"),
        (TensorSpec((), "int64", Constant(0)), "torch.zeros((), dtype=torch.int64)"),
        (
            TensorSpec((3,), "bool", Constant(True)),
            "torch.ones((3,), dtype=torch.bool)",
        ),
        (
            TensorSpec((3,), "float32", Constant(-0.0)),
            "torch.full((3,), -0.0, dtype=torch.float32)",
        ),
        (
            TensorSpec((3,), "float32", Constant(math.inf)),
            'torch.full((3,), float("inf"), dtype=torch.float32)',
        ),
        (TensorSpec((2, 3), "int64", Counted()), "torch.arange(6).reshape((2, 3))"),
        (
            TensorSpec((2,), "float64", Seeded("rand")),
            "torch.rand((2,), dtype=torch.float64)",
        ),
        (
            TensorSpec((2,), "bfloat16", Seeded("randn")),
            "torch.randn((2,)).to(torch.bfloat16)",
        ),
        (
            TensorSpec((2,), "int64", Seeded("randint", 0, 9)),
            "torch.randint(0, 9, (2,))",
        ),
        (
            TensorSpec((2, 2), "float32", Sparse(0.0, ((3, math.nan),))),
            'torch.tensor([[0.0, 0.0], [0.0, float("nan")]], dtype=torch.float32)',
        ),
        (
            TensorSpec((LISTED + 1,), "int64", Sparse(0, ((7, 2),))),
            "torch.zeros((65,), dtype=torch.int64)"
            ".put_(torch.tensor([7]), torch.tensor([2], dtype=torch.int64))",
        ),
        (
            TensorSpec((2, 3), "float32", Constant(0.0), (1, 2)),
            "torch.zeros((6,)).as_strided((2, 3), (1, 2))",
        ),
        (
            TensorSpec((2, 3), "float32", Saved("example_x")),
            'data["example_x"][:2, :3].contiguous()',
        ),
        (
            TensorSpec((2, 3), "float32", Saved("example_x"), (1, 2)),
            'data["example_x"][:2, :3]',
        ),
        (TensorSpec((), "", Opaque("made()")), "made()"),
    ],
)
def test_tensor_spec_is_written_as_torch_call(recipe: TensorSpec, text: str) -> None:
    assert write_tensor_spec(recipe) == text


def test_tensor_spec_is_written_for_another_device() -> None:
    assert write_tensor_spec(TensorSpec((1,), "float32", Constant(0.0)), "cuda") == (
        'torch.zeros((1,)).to("cuda")'
    )


@given(recipe=recipes(), data=st.data())
def test_resized_tensor_spec_has_requested_size(
    recipe: TensorSpec, data: st.DataObject
) -> None:
    dim = data.draw(st.integers(0, 3))
    size = data.draw(st.integers(0, 6))
    try:
        made = recipe.resized(dim, size)
    except InvalidEdit:
        grown = dim < len(recipe.shape) and size > recipe.shape[dim]
        saved = isinstance(recipe.fill, Saved) and grown
        assert isinstance(recipe.fill, Opaque) or dim >= len(recipe.shape) or saved
        return
    shape = list(recipe.shape)
    shape[dim] = size
    assert made.shape == tuple(shape)
    if isinstance(made.fill, Sparse):
        assert made.fill.elements[-1][0] < made.span


def test_resized_tensor_spec_keeps_dim_order() -> None:
    columns = TensorSpec((4, 6), "float32", Constant(0.0), (1, 4))
    assert columns.resized(0, 2).stride == (1, 2)
    assert columns.resized(0, 1).stride is None
    repeated = TensorSpec((4, 6), "float32", Constant(0.0), (0, 1))
    assert repeated.resized(1, 2).stride == (0, 1)


@pytest.mark.parametrize(
    ("dim", "size", "stride"),
    [
        (0, 1, (320, 80, 1)),  # what steps over one is as it was
        (2, 24, (160, 40, 1)),
        (2, 1, (8, 2, 1)),
        (1, 1, (80, 80, 1)),
    ],
)
def test_resized_tensor_spec_keeps_stride_gaps(
    dim: int, size: int, stride: tuple[int, ...]
) -> None:
    rows = TensorSpec((2, 4, 48), "float32", Constant(0.0), (320, 80, 1))
    assert rows.resized(dim, size).stride == stride
    assert rows.contiguous(in_order=True).stride is None


def test_resized_tensor_spec_keeps_overlapping_strides() -> None:
    windows = TensorSpec((10, 3), "float32", Constant(0.0), (1, 1))
    assert windows.resized(0, 4).stride == (1, 1)
    one_row = TensorSpec((1, 3), "float32", Constant(0.0), (1, 1))
    assert one_row.resized(0, 3).stride is None
    every_other = TensorSpec((6, 4), "float32", Constant(0.0), (2, 24))
    assert every_other.resized(0, 2).stride == (2, 8)
    assert every_other.contiguous(in_order=True).stride == (1, 6)


def test_resized_saved_tensor_keeps_strides() -> None:
    """``data["x"][:2]`` has the strides of what is saved."""
    saved = TensorSpec((4, 6), "float32", Saved("x"), (1, 4))
    assert saved.resized(0, 2).stride == (1, 4)
    with pytest.raises(InvalidEdit, match="saved"):
        saved.resized(0, 5)


def test_sparse_elements_beyond_resized_end_are_removed() -> None:
    sparse = TensorSpec((9,), "float32", Sparse(0.0, ((3, 1.0), (7, 2.0))))
    assert sparse.resized(0, 5).fill == Sparse(0.0, ((3, 1.0),))
    assert sparse.resized(0, 2).fill == Constant(0.0)


@given(recipe=recipes())
def test_contiguous_tensor_spec_has_minimal_span(recipe: TensorSpec) -> None:
    made = recipe.contiguous()
    assert made.stride is None
    assert made.span == math.prod(made.shape)
