"""What a file may say of how its inputs and outputs are nested."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from shrinkfx.worker.archive import disarmed
from shrinkfx.worker.containers import require_inputs, require_outputs, trust
from shrinkfx.worker.refused import Refused

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
def test_what_torch_has_registered_is_taken(text: str) -> None:
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
        (treespec("NO_SERIALIZED_TYPE_NAME_FOUND", "null"), "--preload"),
        (
            treespec("transformers.modeling_outputs.CausalLMOutput", "[]"),
            "--preload transformers.modeling_outputs",
        ),
    ],
)
def test_anything_else_is_refused_with_what_would_allow_it(
    text: str, advice: str
) -> None:
    with pytest.raises(Refused) as caught:
        require_outputs(text)
    assert advice in caught.value.advice
    assert "this" not in sys.modules


def test_what_a_preload_brought_is_taken() -> None:
    text = factory_of("json", "JSONEncoder")
    with pytest.raises(Refused):
        require_outputs(text)
    trust({"json"})
    require_outputs(text)


@pytest.mark.parametrize("key", ['"', "'", "\\", "a\nb", "{x}"])
def test_keys_of_inputs_stay_texts_in_code(key: str) -> None:
    text = treespec("builtins.dict", json.dumps(["a", key]))
    require_outputs(text)
    with pytest.raises(Refused, match="writes into code"):
        require_inputs(
            json.dumps([1, {**json.loads(text)[1], "children_spec": [LEAF]}])
        )


class Kind(enum.Enum):
    A = "a"


def test_an_enum_of_a_preload_may_be_a_key(tmp_path: Path) -> None:
    path = tmp_path / "inputs.pt"
    torch.save({Kind.A: 1}, path)
    with disarmed(), pytest.raises(Exception, match="Kind"):
        torch.load(path, weights_only=True)
    trust([__name__])
    with disarmed():
        assert torch.load(path, weights_only=True) == {Kind.A: 1}
