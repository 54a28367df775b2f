"""What Inductor's intermediate value printer writes, read back."""

from __future__ import annotations

from shrinkfx.explain.guide import (
    list_kernel_inputs,
    parse_launches,
    parse_values,
)
from shrinkfx.findings.guide import Value

FACTS = """
Number of elements: {elements}
Dtype: float32
Mean value: -0.0653037
Min value: -4.95374
Max value: 5.05886
Device: cpu
Size: {size}
Stride: [384, 32, 1]
Layout: Strided
Is contiguous: 1
Requires grad: 0

"""
OF_X = FACTS.format(elements=768, size="[2, 12, 32]")

FROM_CPP = f"""\
[  aoti_model_inputs - arg0_1  ]:{OF_X}\
[  before_launch - cpp_fused_flip_0 - arg0_1  ]:{OF_X}\
[  before_launch - cpp_fused_flip_0 - buf0  ]:{OF_X}\
[  before_launch - cpp_fused_flip_0 - s0: 12  ]
[  after_launch - cpp_fused_flip_0 - arg0_1  ]:{OF_X}\
[  after_launch - cpp_fused_flip_0 - buf0  ]:{OF_X}\
[  before_launch - cpp_fused_roll_1 - buf0  ]:{OF_X}\
[  before_launch - cpp_fused_roll_1 - buf1  ]:{OF_X}\
Error: index out of bounds: 0 <= tmp1 < 12L
"""
"""AOTInductor's, of torch 2.13."""

FROM_PYTHON = """\
inductor: before_launch - triton_poi_0 - arg0_1
tensor([[0.1, -2.0]])
Number of elements:  2
Size:  torch.Size([1, 2])
Dtype:  torch.float32
Mean:  -0.95
Min:  -2.0
Max:  0.1
Std:  1.48
inductor: before_launch - triton_poi_0 - 2
Value:  2
inductor: before_launch - triton_poi_0 - s0
Value:  7
"""
"""That of Inductor's Python wrapper."""


def test_values_are_read_with_shape_and_range() -> None:
    first = next(iter(list_kernel_inputs(FROM_CPP)))
    range_of_it = "-4.95374", "5.05886", "-0.0653037"
    kernel = "cpp_fused_flip_0"
    assert first == Value(kernel, "arg0_1", "float32", (2, 12, 32), 768, *range_of_it)
    assert str(first) == (
        "cpp_fused_flip_0 receives arg0_1: float32[2, 12, 32], "
        "from -4.95374 to 5.05886, mean -0.0653037"
    )


def test_unwritten_memory_is_not_a_value() -> None:
    seen = [
        (value.kernel, value.argument, value.number)
        for value in list_kernel_inputs(FROM_CPP)
    ]
    assert seen == [
        ("cpp_fused_flip_0", "arg0_1", ""),
        ("cpp_fused_flip_0", "s0", "12"),
        ("cpp_fused_roll_1", "buf0", ""),
    ]


def test_reused_buffer_is_a_value() -> None:
    text = FROM_CPP[FROM_CPP.index("[  before_launch - cpp_fused_roll_1") :]
    assert list(list_kernel_inputs(text)) == []
    assert [v.argument for v in list_kernel_inputs(text, lambda _: {"buf0"})] == [
        "buf0"
    ]


def test_inputs_of_the_program_belong_to_no_kernel() -> None:
    assert next((p.when, p.value.kernel) for p in parse_values(FROM_CPP)) == ("", "")


def test_values_of_the_last_launch_are_kept() -> None:
    twice = FROM_CPP + FROM_CPP.replace("arg0_1", "arg9_1")
    assert [
        v.argument for v in list_kernel_inputs(twice) if v.kernel == "cpp_fused_flip_0"
    ] == [*("arg9_1", "s0")]


def test_values_printed_by_python_code_are_parsed() -> None:
    tensor, size = list_kernel_inputs(FROM_PYTHON)
    assert (tensor.shape, tensor.dtype, tensor.minimum) == ((1, 2), "float32", "-2.0")
    assert str(size) == "triton_poi_0 receives s0: 7"


def test_dtypes_are_named_as_in_torch() -> None:
    text = FROM_CPP.replace("Dtype: float32", "Dtype: long int")
    assert {value.dtype for value in list_kernel_inputs(text)} == {"int64", ""}


def test_names_of_launches_are_read_in_order() -> None:
    text = "[ before_launch: a_0 ]\n[ after_launch: a_0 ]\n[ before_launch: b_1 ]\n"
    assert parse_launches(text) == [
        ("before", "a_0"),
        ("after", "a_0"),
        ("before", "b_1"),
    ]


def test_text_without_values_gives_none() -> None:
    assert list(list_kernel_inputs("Fatal Python error: Segmentation fault\n")) == []
