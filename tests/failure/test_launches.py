"""How far a run came, by the launches that it printed."""

from __future__ import annotations

import pytest

from shrinkfx.failure.blame import ended_inside_launch, find_reached_launch, is_call

KERNELS = ["cpp_0", "aoti_torch_cpu__embedding_bag", "cpp_1"]
CALL = "at::_ops::_embedding_bag::call"


def printed(*names: str, ended: bool = True) -> str:
    """Print launches, of which the last may not have ended."""
    lines = [f"[ {w}_launch: {n} ]" for n in names for w in ("before", "after")]
    return "\n".join(lines if ended else lines[:-1])


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("", None),
        (printed("cpp_0", ended=False), 0),
        (printed("cpp_0"), 1),
        (printed("cpp_0", CALL, ended=False), 1),
        (printed("cpp_0", CALL), 2),
        (printed("cpp_0", CALL, "cpp_1"), None),
    ],
)
def test_reached_launch_is_found(said: str, place: int | None) -> None:
    assert find_reached_launch(KERNELS, said) == place


def test_unknown_call_has_no_reached_launch() -> None:
    said = printed("cpp_0", "at::_ops::cumsum::call", ended=False)
    assert find_reached_launch(KERNELS, said) is None
    assert (
        find_reached_launch(KERNELS, printed("cpp_0", "at::_ops::cumsum::call")) is None
    )


def test_call_name_is_matched_with_and_without_out() -> None:
    assert (
        find_reached_launch(
            ["aoti_torch_cpu_mm_out"], printed("at::_ops::mm_out::call")
        )
        is None
    )
    assert (
        find_reached_launch(
            ["aoti_torch_mm"], printed("at::_ops::mm_out::call", ended=False)
        )
        == 0
    )


def test_calls_are_distinguished_from_kernels() -> None:
    assert is_call("aoti_torch_cpu__embedding_bag")
    assert not is_call("cpp_fused_embedding_0")
    assert ended_inside_launch(printed("cpp_0", ended=False))
    assert not ended_inside_launch(printed("cpp_0"))
    assert not ended_inside_launch("")
