"""Statements, their leaves, and what is written anew."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.errors import InvalidEdit
from shrinkfx.program.listing.printed_program import RETURN, Leaf, LeafKind, Statement

NAMES = st.sampled_from(["x", "add_1", "arg7_1", "self.weight"])
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.text(max_size=4),
).map(repr)
WORDS = st.sampled_from(
    ["torch.float32", "torch.strided", 'torch.device("cpu")', 'float("inf")']
)
SIZES = st.sampled_from(
    ["x.shape[0]", "2 * n", "slice(None, 3, None)", "x.size(dim=1)"]
)


def _several(items: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    held = st.lists(items, max_size=3)
    lists = held.map(lambda texts: f"[{', '.join(texts)}]")
    tuples = held.map(lambda texts: f"({' '.join(text + ',' for text in texts)})")
    mapped = held.map(
        lambda texts: f"{{{', '.join(f'{i}: {t}' for i, t in enumerate(texts))}}}"
    )
    return lists | tuples | mapped


ARGUMENTS = st.recursive(NAMES | NUMBERS | WORDS | SIZES, _several, max_leaves=6)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """Draw a call of an operator."""
    given = draw(st.lists(ARGUMENTS, max_size=4))
    words = draw(st.lists(ARGUMENTS, max_size=2))
    named = [f"k{i}={text}" for i, text in enumerate(words)]
    return f"torch.ops.aten.add.Tensor({', '.join([*given, *named])})"


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Draw a line of a program, as a printer writes it."""
    made = draw(calls())
    returned = draw(ARGUMENTS)
    head = st.sampled_from([f"y = {made}", made, f"return {returned}", "y = cond[1]"])
    origin = st.sampled_from(["", "  # model.py:3  self.act(x)", "  # é: # 2"])
    return draw(head) + draw(origin)


@given(line=lines())
def test_line_round_trips_through_statement(line: str) -> None:
    statement = Statement.parse_line(line)
    assert Statement.parse_line(statement.line()) == statement
    assert ast.unparse(ast.parse(line)) == ast.unparse(ast.parse(statement.line()))


@given(line=lines())
def test_leaves_are_numbered_in_text_order(line: str) -> None:
    statement = Statement.parse_line(line)
    leaves = statement.leaves
    assert [leaf.number for leaf in leaves] == [*range(len(leaves))]
    assert statement.written({leaf.number: leaf.text for leaf in leaves}) == statement
    place = 0
    for leaf in leaves:
        place = statement.code.index(leaf.text, place)
        assert leaf.parent is None or leaf.parent < leaf.number
        if leaf.kind not in (LeafKind.LIST, LeafKind.SIZE):
            place += len(leaf.text)


@given(line=lines(), data=st.data())
def test_writing_a_leaf_changes_nothing_else(line: str, data: st.DataObject) -> None:
    statement = Statement.parse_line(line)
    if statement.leaves:
        leaf = data.draw(st.sampled_from(statement.leaves))
        written = statement.written({leaf.number: "twelve"})
        assert written.leaves[leaf.number].text == "twelve"
        assert written.written({leaf.number: leaf.text}) == statement


@given(line=lines(), data=st.data())
def test_removing_a_leaf_reduces_weight(line: str, data: st.DataObject) -> None:
    statement = Statement.parse_line(line)
    for leaf in statement.leaves:
        try:
            left = statement.written({leaf.number: ""})
        except InvalidEdit:
            continue
        assert left.weight < statement.weight
        assert len(left.leaves) < len(statement.leaves)


VIEW = Statement.parse_line("view = torch.ops.aten.view.default(x, [2, 12], k=None)")


def test_statement_has_typed_leaves() -> None:
    assert VIEW.leaves == (
        Leaf(0, LeafKind.VALUE, "x"),
        Leaf(1, LeafKind.LIST, "[2, 12]"),
        Leaf(2, LeafKind.NUMBER, "2", parent=1),
        Leaf(3, LeafKind.NUMBER, "12", parent=1),
        Leaf(4, LeafKind.NUMBER, "None", keyword="k"),
    )


@pytest.mark.parametrize(
    ("texts", "code"),
    [
        ({0: "self.w"}, "torch.ops.aten.view.default(self.w, [2, 12], k=None)"),
        ({2: "", 3: "1"}, "torch.ops.aten.view.default(x, [1], k=None)"),
        ({1: ""}, "torch.ops.aten.view.default(x, k=None)"),
        ({4: "", 1: "[]"}, "torch.ops.aten.view.default(x, [])"),
    ],
)
def test_written_leaves_replace_text(texts: dict[int, str], code: str) -> None:
    assert VIEW.written(texts).code == code


@pytest.mark.parametrize("texts", [{5: "1"}, {0: "1 +"}, {0: "x = 1"}])
def test_leaf_text_that_is_no_expression_is_refused(texts: dict[int, str]) -> None:
    with pytest.raises(InvalidEdit):
        VIEW.written(texts)


def test_removing_required_leaf_is_refused() -> None:
    with pytest.raises(InvalidEdit, match="taken away"):
        Statement.parse_line("return x").written({0: ""})


@pytest.mark.parametrize("line", ["x, y = f()", "pass", "return", "x += 1", "x"])
def test_unsupported_python_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="no statement"):
        Statement.parse_line(line)


@pytest.mark.parametrize(
    ("line", "reads"),
    [
        ("y = torch.ops.aten.add.Tensor(x, self.w)", {"x", "self.w"}),
        ("self.held.copy_(add)", {"self.held", "add"}),
        ("y = torch.cond(p, self.t.forward, (x,))", {"p", "self.t", "x"}),
        ("n = x.shape[0] + operator.mul(m, 2)", {"x", "m"}),
        ("return (x, y, None)", {"x", "y"}),
    ],
)
def test_statement_reads_its_operands(line: str, reads: set[str]) -> None:
    assert Statement.parse_line(line).reads == reads


@pytest.mark.parametrize(
    ("callee", "acts"),
    [
        ("torch.ops.aten.add_.Tensor", True),
        ("torch.ops.aten.add.Tensor", False),
        ("torch.ops.aten.__ior__.Tensor", True),
        ("torch.ops.aten.__or__.Tensor", False),
        ("torch.ops.aten._assert_async.msg", True),
        ("torch.ops.aten._assert_scalar.default", True),
        ("torch.ops.higher_order.triton_kernel_wrapper_mutation", True),
        ("torch.ops.higher_order.while_loop", False),
        ("self.queue.push", True),
        ("operator.add", False),
    ],
)
def test_statement_effects_are_recognised_by_callee(callee: str, acts: bool) -> None:
    assert Statement.parse_line(f"y = {callee}(x)").may_have_effects is acts


@pytest.mark.parametrize(
    ("line", "is_operator"),
    [
        ("y = torch.ops.aten.add.Tensor(x, x)", True),
        ("y = torch.cond(p, self.t, self.f, (x,))", True),
        ("getitem = cond[0]", False),
        ("n = x.shape[0]", False),
        ("n = operator.add(m, 1)", False),
        ("return (x,)", False),
    ],
)
def test_operator_calls_are_recognised(line: str, is_operator: bool) -> None:
    assert Statement.parse_line(line).is_operator is is_operator


def test_return_statement_has_name_and_yields_nothing() -> None:
    statement = Statement.parse_line("return (x,)")
    assert (statement.name, statement.yields) == (RETURN, False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(x, [3, 3])", "f(x, [1, 1])"),
        ("f(x, [1, 1])", "f(x, [])"),
        ("f(x, [])", "f(x)"),
        ("f(x, False)", "f(x)"),
        ("f(x, 100)", "f(x, 10)"),
        ("f(x, 1e-05)", "f(x, 0.5)"),
        ("f(x, torch.bfloat16)", "f(x, torch.float32)"),
        ("f(x.shape[0])", "f(12)"),
    ],
)
def test_simpler_statement_weighs_less(before: str, after: str) -> None:
    plain, other = (Statement.parse_line(f"y = {code}") for code in (after, before))
    assert plain.weight < other.weight


def test_statement_weight_ignores_name_length() -> None:
    short, long = Statement("y", "f(x)"), Statement("y", "f(self.layers_0_weight)")
    assert short.weight == long.weight
