"""What drifts while a program shrinks, and what must stay."""

from __future__ import annotations

import pytest

from shrinkfx.failure.signature import demangled_name, normalise, normalise_cpp


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("index 3 of 10L at 0x7f00, 1e-05 or -4", "index # of # at #, # or #"),
        ("buf12 and arg0_1 and primals_3", "buf# and arg# and primals"),
        ("cpp_fused_add_relu_0 and triton_poi_fused_mul_3", "kernel and kernel"),
        ("sizes [1, 2, 3], [s77, 2*u0 + 1], [], (3,)", "sizes [#], [#], [#], (#)"),
        ("layers.11.weight of p_layers_11_weight", "layers.weight of p_layers_weight"),
        (
            "torch.float32, Half and scalar type Long",
            "dtype, dtype and scalar type dtype",
        ),
        ("cuda:0 and cuda:1", "cuda:# and cuda:#"),
        (
            "holds 3 (TreeSpec(tuple, None, [*, TreeSpec(dict, ['a'], [*]), *]))",
            "holds #",
        ),
        ("holds 19 (TreeSpec(tuple, None, [*,", "holds #"),
        ("holds 1 items (*).", "holds # items"),
    ],
)
def test_normalise_removes_varying_parts(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "in /home/me/models/big-one.py:12: no",
        "in '/home/some body/models/big one/x.bin': no",
        "in ~/models/x.pt2: no",
        "in models/mine.v2/ops.py(12): no",
        "in my_ops.py:12: no",
        "in /tmp/ab_cd/c.kernel.cpp:22:7: no",
    ],
)
def test_normalise_removes_file_names(text: str) -> None:
    left = normalise(text)
    assert not {"home", "body", "me", "models", "x", "py", "ops", "tmp"} & set(
        left.replace("/", " ").replace(".", " ").split()
    )
    assert left.endswith(": no")


@pytest.mark.parametrize(
    "text",
    [
        "'NoneType' object has no attribute 'dtype'",
        "aten.conv2d and aten.conv1d, log1p and/or more",
        "expected ScalarType but found Symbol",
        "log2, not log10 nor aten.exp2.default; mylib::op1, not mylib::op2",
        "it doesn't hold x/y, and can't",
    ],
)
def test_normalise_keeps_distinguishing_text(text: str) -> None:
    assert normalise(text) == text


@pytest.mark.parametrize(
    ("scalar", "vector"),
    [
        (
            "no matching function for call to \u2018max(float&, double)\u2019",
            "no matching function for call to "
            "\u2018max(at::vec::Vectorized<float>&, double)\u2019",
        ),
        (
            "cannot convert \u2018S\u2019 {aka \u2018T\u2019} to \u2018float\u2019",
            "cannot convert \u2018S\u2019 to \u2018at::vec::Vectorized<float>\u2019",
        ),
        (
            "\u2018f\u2019 was not declared; did you mean \u2018fmod\u2019?",
            "\u2018f\u2019 was not declared",
        ),
        (
            "undefined symbol: _Z3fooffRKi",
            "undefined symbol: _Z3fooN2at3vec10VectorizedIfEEfRKi",
        ),
        ("undefined reference to `foo(float)'", "undefined reference to `foo(long)'"),
    ],
)
def test_normalise_cpp_removes_types(scalar: str, vector: str) -> None:
    assert normalise_cpp(scalar) == normalise_cpp(vector)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("\u2018f\u2019 was not declared", "\u2018g\u2019 was not declared"),
        ("call to \u2018max(int)\u2019", "call to \u2018min(int)\u2019"),
        ("no match for \u2018operator%\u2019", "no match for \u2018operator&\u2019"),
        ("undefined symbol: _Z3foof", "undefined symbol: _Z3barf"),
    ],
)
def test_normalise_cpp_keeps_names(one: str, other: str) -> None:
    assert normalise_cpp(one) != normalise_cpp(other)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z3logf", "log"),
        ("_ZN2at5emptyEl", "at::empty"),
        ("_ZNK3c107SymNode3strB5cxx11Ev", "c10::SymNode::str"),
        ("_Z", "_Z"),
    ],
)
def test_demangled_name_has_no_parameters(mangled: str, name: str) -> None:
    assert demangled_name(mangled) == name
