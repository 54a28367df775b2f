"""Archives of programs: read as torch reads them, or refused."""

from __future__ import annotations

import ast
import enum
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sympy
import torch
from support import damaged
from support.damaged import archive, members
from support.random_programs import make
from test_damaged_files import good_program
from torch._export.verifier import SpecViolationError
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from shrinkfx.check.preflight import require_inputs, require_program
from shrinkfx.errors import LoadError
from shrinkfx.worker.loading.archive import (
    read_program,
    replace_unregistered,
    restrict_unpickling,
    trust,
)

# --- containers


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


FOREIGN = [
    ("transformers.modeling_outputs.CausalLMOutput", '["logits", "loss"]'),
    ("transformers.cache_utils.Cache", enum_of("os:X")),
    ("collections.namedtuple", "third.party.Boxes"),
    ("NO_SERIALIZED_TYPE_NAME_FOUND", "null"),
]


@pytest.mark.parametrize(("kind", "context"), FOREIGN)
def test_outputs_of_unregistered_classes_become_tuples(kind: str, context: str) -> None:
    text = treespec(kind, context)
    read = pytree.treespec_loads(replace_unregistered(text))
    assert read == pytree.tree_structure((0, 0))


@pytest.mark.parametrize(("kind", "context"), FOREIGN)
def test_inputs_of_unregistered_classes_are_refused(
    kind: str, context: str, tmp_path: Path
) -> None:
    def change(program: dict[str, Any]) -> None:
        call = program["graph_module"]["module_call_graph"][0]
        spec = json.loads(call["signature"]["in_spec"])
        spec[1]["children_spec"][0]["children_spec"] = [
            json.loads(treespec(kind, context))[1]
        ]
        call["signature"]["in_spec"] = json.dumps(spec)

    path = tmp_path / "program.pt2"
    path.write_bytes(damaged.changed(good_program(), change))
    with pytest.raises(LoadError) as caught:
        read_program(str(path), str(path))
    name = context if kind == "collections.namedtuple" else kind
    assert f"has an input of type {name}, which is not" in caught.value.reason
    assert "--preload" in str(caught.value.advice)


def test_registered_container_is_not_replaced() -> None:
    text = factory_of("builtins", "list")
    assert json.loads(replace_unregistered(text)) == json.loads(text)


FOREIGN_OUTPUTS = """
import sys
from typing import NamedTuple
import torch

class Scores(NamedTuple):
    one: torch.Tensor
    both: tuple[torch.Tensor, torch.Tensor]

class Scored(torch.nn.Module):
    def forward(self, x):
        return {"scores": Scores(x + 1, (x * 2, x.sin()))}

torch.utils._pytree._register_namedtuple(Scores, serialized_type_name="third.Scores")
torch.export.save(torch.export.export(Scored(), (torch.ones(2),)), sys.argv[1])
"""


def test_program_with_outputs_of_a_foreign_class_is_read(tmp_path: Path) -> None:
    """Hugging Face models return classes that only their library registers."""
    model = str(tmp_path / "model.pt2")
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FOREIGN_OUTPUTS, model], check=True
    )
    program = read_program(model, model)
    results = program.module()(torch.ones(2))
    assert results.keys() == {"scores"}
    one, (two, three) = results["scores"]
    assert torch.equal(torch.stack([one, two]), torch.full((2, 2), 2.0))
    assert torch.equal(three, torch.ones(2).sin())


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


# --- random programs


NO_WARNINGS = pytest.mark.filterwarnings("ignore::UserWarning")


def seen(program: ExportedProgram) -> list[object]:
    """Gather what a reader makes of a file: graph, sizes, ranges, nesting, guards."""
    values = [str(n.meta.get("val")) for n in program.graph.nodes]
    guards = [ast.dump(ast.parse(text)) for text in program._guards_code]
    ranges = {sympy.srepr(k): str(v) for k, v in program.range_constraints.items()}
    return [str(program.graph), values, guards, ranges, str(program.call_spec)]


def read_both_ways(seeds: range, folder: Path) -> int:
    """Count the programs that were read; the others have no export."""
    done = 0
    for seed in seeds:
        try:
            exported = make(Random(seed)).export()
        except Exception:  # noqa: BLE001 - a size that only data tells, export's own bugs
            continue
        path = folder / "program.pt2"
        torch.export.save(exported, path)
        try:
            by_torch = torch.export.load(path)
        except SpecViolationError:  # torch does not read what torch has written
            with pytest.raises(LoadError, match="SpecViolationError"):
                read_program(str(path), str(path))
            continue
        assert seen(read_program(str(path), str(path))) == seen(by_torch), seed
        done += 1
    return done


@NO_WARNINGS
def test_a_dozen_programs_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    assert read_both_ways(range(13), tmp_path) >= 12


@NO_WARNINGS
@pytest.mark.slow
def test_500_programs_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    assert read_both_ways(range(540), tmp_path) >= 500


# --- checked before reading


def test_archives_written_by_torch_and_zipfile_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    path.write_bytes(archive(members(good_program())))
    require_program(path)
    exported = torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    torch.export.save(exported, path)
    require_program(path)
    for data in ((torch.ones(3),), {"args": (torch.ones(2, 2),), "kwargs": {}}):
        torch.save(data, path)
        require_inputs(path)
