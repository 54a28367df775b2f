"""Memory of exactly the size that is needed, and what it is to the program."""

from __future__ import annotations

import torch

from shrinkfx.worker.interpreter.memory_checks import (
    Roles,
    allocate,
    copy_to_exact_size,
    map_sparse_vector,
)


def test_allocation_has_exact_size_and_is_poisoned() -> None:
    made = allocate((3, 4), (5, 1), torch.float32)
    assert made.stride() == (5, 1)
    assert made.untyped_storage().nbytes() == 14 * 4
    assert made.isnan().all()
    assert allocate((2,), (1,), torch.int64).tolist() == [0x7B7B7B7B7B7B7B7B] * 2
    assert allocate((0, 3), (3, 1), torch.int8).untyped_storage().nbytes() == 0


def test_copy_of_a_view_excludes_the_rest_of_its_storage() -> None:
    whole = torch.arange(100.0)
    copied = copy_to_exact_size(whole[10:20:3])
    assert copied.tolist() == [10.0, 13.0, 16.0, 19.0]
    assert copied.stride() == (3,)
    assert copied.untyped_storage().nbytes() == 10 * 4
    assert copied.data_ptr() % 16 == 0


def test_copy_of_an_expanded_tensor_shares_its_elements() -> None:
    copied = copy_to_exact_size(torch.arange(3.0).expand(4, 3))
    assert copied.stride() == (0, 1)
    assert copied[2].tolist() == [0.0, 1.0, 2.0]


def test_sparse_vector_of_32_gib_can_be_mapped() -> None:
    vector = map_sparse_vector(1 << 35, torch.int8)
    vector[-1] = 7
    assert (vector[0].item(), vector[-1].item()) == (0, 7)


def test_result_role_does_not_replace_an_input_role() -> None:
    roles, given, made = Roles(), torch.ones(2), torch.ones(2)
    roles.set_role(given, "input 0")
    roles.set_result_role(given, ["aten.add_"])
    roles.set_result_role(made, ["aten.add", "aten.mul"])
    assert roles.get_role(given.view(1, 2)) == "input 0"
    assert roles.get_role(made) == "result of aten.add, aten.mul"
