"""A tensor spec makes the tensor that it was written from."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Saved,
    Seeded,
    Sparse,
    TensorSpec,
    write_tensor_spec,
)
from shrinkfx.worker.graph.symbols import CannotRebuild
from shrinkfx.worker.listing.describe import (
    choose_seeded_initializer,
    make_exact_spec,
    make_from_spec,
)
from shrinkfx.worker.printing.module import is_identical


def few(count: int) -> Tensor:
    made = torch.zeros(5000)
    made[torch.arange(count) * 9] = torch.arange(1.0, count + 1)
    return made


ODD = torch.tensor([0.5, math.nan, -math.inf, -0.0])
FLOATS = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]
WHOLE = [torch.int8, torch.int64, torch.uint16, torch.uint64]
VALUES: list[tuple[Tensor, type[Initializer]]] = [
    (torch.zeros(0, 3), Constant),
    (torch.ones(70, 3), Constant),
    (torch.full((70,), math.nan), Constant),
    (torch.full((70,), 1 + 2j), Constant),
    (torch.full((2,), 2**63, dtype=torch.uint64), Constant),
    (torch.full((3,), -0.0), Constant),
    (torch.full((70,), -0.0), Constant),
    (torch.tensor(True), Constant),
    (torch.arange(100).reshape(4, 25), Counted),
    (torch.arange(100.0).reshape(25, 4).t(), Counted),
    (torch.arange(100).to(torch.int32), Counted),
    (ODD, Sparse),
    (torch.tensor([1 + 2j, 3, 3]), Sparse),
    (torch.tensor([True, False, True]), Sparse),
    *((ODD.to(dtype), Sparse) for dtype in FLOATS),
    *((torch.tensor([3, 1, 4], dtype=dtype), Sparse) for dtype in WHOLE),
    (few(5), Sparse),
    (few(64).reshape(50, 100).t(), Sparse),
    (few(65), Saved),
    (few(5).to(torch.complex128), Saved),
    (few(200).bfloat16()[::3], Saved),
    (torch.arange(6.0)[:2].expand(50, 2), Counted),
    (torch.randn(3, 50)[:, ::5], Saved),
    (torch.randn(40).expand(3, 40), Sparse),
    (torch.randn(70).expand(3, 70), Saved),
]


@pytest.mark.parametrize(("value", "kind"), VALUES)
def test_exact_tensor_spec_reproduces_the_values(
    value: Tensor, kind: type[Initializer]
) -> None:
    recipe = make_exact_spec(value, "key")
    assert isinstance(recipe.fill, kind)
    said = TensorSpec.from_json(json.loads(json.dumps(recipe.to_json())))
    assert said == recipe
    made = make_from_spec(said, {"key": value})
    assert is_like(made, value)
    if kind is not Saved:
        assert is_like(eval(write_tensor_spec(recipe), {"torch": torch}), value)


def is_like(one: Tensor, other: Tensor) -> bool:
    """Tell whether two are the same bit for bit, or NaN where the other is."""
    if not one.is_floating_point():
        return is_identical(one, other)
    alike = (one.dtype, one.stride()) == (other.dtype, other.stride())
    nans = [t.double().isnan() for t in (one, other)]
    rest = [t.double().masked_fill(nans[0], 0) for t in (one, other)]
    return alike and torch.equal(*nans) and is_identical(*rest)


def drawn(value: Tensor) -> Seeded | None:
    return choose_seeded_initializer(value, make_exact_spec(value, "key"))


def test_plain_values_get_no_seeded_initializer() -> None:
    plain = [torch.ones(70), torch.arange(70.0), ODD, torch.tensor(0.5), few(0)]
    assert [drawn(value) for value in plain] == [None] * len(plain)


def test_seeded_initializer_has_the_range_of_the_values() -> None:
    assert drawn(torch.linspace(-1, 1, 70)) == Seeded("randn")
    assert drawn(torch.linspace(0, 1, 70).bfloat16()) == Seeded("rand")
    assert drawn(torch.randn(9, dtype=torch.complex64)) == Seeded("randn")
    assert drawn(few(5) > 0) == Seeded("randint", 0, 2)
    assert drawn(torch.tensor([5, 3] * 6)) == Seeded("randint", 3, 6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "float8_e5m2"])
def test_seeded_tensor_spec_can_be_created(dtype: str) -> None:
    recipe = TensorSpec((3, 4), dtype, Seeded("randn"), (1, 3))
    made = make_from_spec(recipe, {})
    assert (made.dtype, made.stride()) == (getattr(torch, dtype), (1, 3))


def test_saved_values_keep_their_strides_when_resized() -> None:
    value = torch.randn(10, 16)[:, ::2]
    recipe = make_exact_spec(value, "key")
    assert recipe.fill == Saved("key")
    smaller = recipe.resized(0, 2).resized(1, 3)
    made = make_from_spec(smaller, {"key": value})
    assert torch.equal(made, value[:2, :3])
    assert made.stride() == smaller.stride == (16, 2)
    assert made.untyped_storage().nbytes() == 4 * (1 + 16 + 2 * 2)
    assert torch.equal(make_from_spec(smaller.contiguous(), {"key": value}), made)


def test_saved_values_of_full_size_are_not_copied() -> None:
    value = torch.randn(70, 2).t()
    made = make_from_spec(make_exact_spec(value, "key"), {"key": value})
    assert made.data_ptr() == value.data_ptr()
    assert is_identical(made, value)


def test_missing_saved_values_cannot_be_rebuilt() -> None:
    recipe = TensorSpec((2, 70), "float32", Saved("key"))
    for saved in ({}, *({"key": torch.randn(shape)} for shape in ((2, 60), (70,)))):
        with pytest.raises(CannotRebuild, match="saved"):
            make_from_spec(recipe, saved)
