"""What a file may say of how its inputs and outputs are nested."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

from shrinkfx.worker.loading.archive import read_program, restrict_unpickling
from shrinkfx.worker.loading.containers import (
    replace_unregistered,
    require_inputs,
    require_outputs,
    trust,
)
from shrinkfx.worker.loading.refused import Refused

LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}


def treespec(kind: str, context: Any) -> str:
    return json.dumps(
        [1, {"type": kind, "context": context, "children_spec": [LEAF, LEAF]}]
    )


def enum_of(name: str) -> str:
    key = {"__enum__": True, "fqn": name, "name": "MATH"}
    return treespec("builtins.dict", json.dumps(["a", key]))


def factory_of(module: str, name: str) -> str:
    context = {
        "default_factory_module": module,
        "default_factory_name": name,
        "dict_context": ["a", "b"],
    }
    return treespec("collections.defaultdict", context)


@pytest.mark.parametrize(
    "text",
    [
        treespec("builtins.tuple", "null"),
        treespec("builtins.dict", '["a", "b"]'),
        treespec("collections.OrderedDict", '["a", 3]'),
        factory_of("builtins", "list"),
        enum_of("torch.export.graph_signature:InputKind"),
    ],
)
def test_containers_registered_by_torch_are_accepted(text: str) -> None:
    require_outputs(text)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (enum_of("this:X"), "--preload this"),
        (enum_of("os:X"), "--preload os"),
        (enum_of("torch.nosuch:X"), "export it again"),
        (enum_of("torch:Tensor"), "export it again"),
        (factory_of("os", "abort"), "--preload os"),
        (factory_of("builtins", "breakpoint"), "--preload builtins"),
    ],
)
def test_unknown_enum_or_factory_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(Refused) as caught:
        require_outputs(text)
    assert advice in str(caught.value.advice)
    assert "this" not in sys.modules


FOREIGN = [
    ("transformers.modeling_outputs.CausalLMOutput", '["logits", "loss"]'),
    ("transformers.cache_utils.Cache", enum_of("os:X")),
    ("collections.namedtuple", "third.party.Boxes"),
    ("NO_SERIALIZED_TYPE_NAME_FOUND", "null"),
]


@pytest.mark.parametrize(("kind", "context"), FOREIGN)
def test_outputs_of_unregistered_classes_become_tuples(kind: str, context: str) -> None:
    text = treespec(kind, context)
    require_outputs(text)
    read = pytree.treespec_loads(replace_unregistered(text))
    assert read == pytree.tree_structure((0, 0))


@pytest.mark.parametrize(("kind", "context"), FOREIGN)
def test_inputs_of_unregistered_classes_are_refused(kind: str, context: str) -> None:
    inner = json.loads(treespec(kind, context))[1]
    whole = {"type": "builtins.tuple", "context": "null", "children_spec": [inner]}
    with pytest.raises(Refused) as caught:
        require_inputs(json.dumps([1, whole]))
    name = context if kind == "collections.namedtuple" else kind
    assert name in str(caught.value)
    assert "--preload" in str(caught.value.advice)


def test_registered_container_is_not_replaced() -> None:
    text = factory_of("builtins", "list")
    assert json.loads(replace_unregistered(text)) == json.loads(text)


class Scores(NamedTuple):
    one: torch.Tensor
    both: tuple[torch.Tensor, torch.Tensor]


class Scored(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Scores]:
        return {"scores": Scores(x + 1, (x * 2, x.sin()))}


def test_program_with_outputs_of_a_foreign_class_is_read(tmp_path: Path) -> None:
    """Hugging Face models return classes that only their library registers."""
    made_by = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import torch
from test_containers import Scored, Scores
torch.utils._pytree._register_namedtuple(Scores, serialized_type_name="third.Scores")
torch.export.save(torch.export.export(Scored(), (torch.ones(2),)), sys.argv[1])
"""
    model = str(tmp_path / "model.pt2")
    subprocess.run([sys.executable, "-W", "ignore", "-c", made_by, model], check=True)
    program = read_program(model, model)
    results = program.module()(torch.ones(2))
    assert results.keys() == {"scores"}
    one, (two, three) = results["scores"]
    assert torch.equal(torch.stack([one, two]), torch.full((2, 2), 2.0))
    assert torch.equal(three, torch.ones(2).sin())


def test_classes_of_a_trusted_preload_are_accepted() -> None:
    text = factory_of("json", "JSONEncoder")
    with pytest.raises(Refused):
        require_outputs(text)
    trust({"json"})
    require_outputs(text)


@pytest.mark.parametrize("key", ['"', "'", "\\", "a\nb", "{x}"])
def test_input_keys_with_special_characters_are_refused(key: str) -> None:
    text = treespec("builtins.dict", json.dumps(["a", key]))
    require_outputs(text)
    with pytest.raises(Refused, match="writes into code"):
        require_inputs(
            json.dumps([1, {**json.loads(text)[1], "children_spec": [LEAF]}])
        )


class Kind(enum.Enum):
    A = "a"


def test_enum_of_a_trusted_preload_may_be_a_key(tmp_path: Path) -> None:
    path = tmp_path / "inputs.pt"
    torch.save({Kind.A: 1}, path)
    with restrict_unpickling(), pytest.raises(Exception, match="Kind"):
        torch.load(path, weights_only=True)
    trust([__name__])
    with restrict_unpickling():
        assert torch.load(path, weights_only=True) == {Kind.A: 1}
