"""What is said of operators that are not what they declare, for tests."""

from __future__ import annotations

from shrinkfx.protocol.operators import FakeMismatch, TensorFacts


def tensor(dtype: str, *shape: int, strides: tuple[int, ...] = ()) -> TensorFacts:
    """State a dense tensor, or one with strides of its own."""
    steps = [1]
    for size in shape[:0:-1]:
        steps.insert(0, steps[0] * size)
    return TensorFacts(dtype, shape, strides or tuple(steps[: len(shape)]))


FLOATS = tensor("float32", 4, 6)


def lie(
    node: str,
    made: TensorFacts = FLOATS,
    declared: TensorFacts = FLOATS,
    *,
    operator: str = "",
    place: str = "",
) -> FakeMismatch:
    """State that an operator makes something else than is declared of it."""
    operator = operator or f"aten.{node}.default"
    return FakeMismatch(node, operator, place, declared, made, node)


def strided(
    node: str, made: tuple[int, ...], declared: tuple[int, ...], operator: str = ""
) -> FakeMismatch:
    """State that a result has other strides than are declared of it."""
    shape = (4, 6)[: len(made)]
    kinds = (tensor("float32", *shape, strides=steps) for steps in (made, declared))
    return lie(node, *kinds, operator=operator)
