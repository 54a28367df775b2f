"""A printed program without its user's names is the same program."""

from __future__ import annotations

import ast
from dataclasses import replace

from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.worker.printing.anonymize import anonymize

ONES = Expression("torch.ones((2,))", "")
BRANCH = """\
class TrueGraph0(torch.nn.Module):
    def forward(self, token_ids, a):
        add = torch.ops.aten.add.Tensor(token_ids, a)  # model.py:3, encoder
        return (add,)"""
SOURCE = Source(
    weights=(
        Weight("encoder_weight", "parameter", ONES),
        Weight("encoder_bias", "parameter", ONES),
        Weight("seen", "non_persistent_buffer", ONES),
        Weight("table", "constant", ONES),
    ),
    inputs=(Input("token_ids", ONES, None), Input("mask", ONES, ONES)),
    branches=(BRANCH,),
    members={"true_graph_0": "TrueGraph0"},
    body=(
        "x = torch.ops.aten.mul.Tensor(token_ids, self.encoder_weight)  # model.py:7",
        "weight = torch.ops.aten.view.default(mask, [batch, token_ids.shape[1] * 2])",
        "cond = torch.cond(x, self.true_graph_0, [self.encoder_bias, self.table])",
        "self.seen.copy_(x)",
        "return (cond, 'mask')",
    ),
    dims=('batch = torch.export.Dim("batch", min=2, max=9)',),
    dynamic_shapes="({0: 2 * batch + 1}, None)",
)


def test_inputs_weights_sizes_and_arguments_of_branches_are_renamed() -> None:
    made, new = anonymize(SOURCE)
    assert [each.name for each in made.inputs] == ["y", "z"]  # a value is x
    assert [w.attribute for w in made.weights] == [
        *("weight_1", "weight_2", "buffer", "constant")  # a value is weight
    ]
    assert made.body == (
        "x = torch.ops.aten.mul.Tensor(y, self.weight_1)",
        "weight = torch.ops.aten.view.default(z, [M, y.shape[1] * 2])",
        "cond = torch.cond(x, self.true_graph_0, [self.weight_2, self.constant])",
        "self.buffer.copy_(x)",
        "return (cond, 'mask')",
    )
    assert made.dims == ('M = torch.export.Dim("M", min=2, max=9)',)
    assert made.dynamic_shapes == "({0: 2 * M + 1}, None)"
    assert "def forward(self, a, b):" in made.branches[0]
    assert "aten.add.Tensor(a, b)" in made.branches[0]
    for text in (*made.body, *made.branches):
        ast.parse(text)
        assert "model.py" not in text
    assert new.inputs == {"token_ids": "y", "mask": "z"}
    assert new.in_file["weight_encoder_weight"] == "weight_weight_1"
    assert new.in_file["failing_mask"] == "failing_z"


def test_program_without_user_names_only_loses_its_comments() -> None:
    plain = replace(
        SOURCE,
        weights=(),
        inputs=(Input("x", ONES, None),),
        branches=(),
        members={},
        body=("relu = torch.ops.aten.relu.default(x)  # model.py:3", "return (relu,)"),
        dims=(),
        dynamic_shapes="None",
    )
    body = ("relu = torch.ops.aten.relu.default(x)", "return (relu,)")
    assert anonymize(plain)[0] == replace(plain, body=body)
