"""This PyTorch has the private names that shrinkfx uses. To port shrinkfx, begin here.

A failure shows the feature and the missing name. The module of the feature says what
happens without it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from shrinkfx.worker import private_api
from shrinkfx.worker.private_api import FEATURES
from shrinkfx.worker.private_api.feature import Feature, MissingName

PATHS = [(feature, path) for feature in FEATURES for path in feature.used]
TEXTS = [
    (file, text)
    for feature in FEATURES
    for file, texts in feature.texts.items()
    for text in texts
]


@pytest.mark.parametrize(
    ("feature", "path"), PATHS, ids=[f"{f.name}: {path}" for f, path in PATHS]
)
def test_torch_has_each_name_of_a_feature(feature: Feature, path: str) -> None:
    feature.look_up(path)


@pytest.mark.parametrize(("file", "text"), TEXTS)
def test_torch_has_each_text_that_is_matched(file: str, text: str) -> None:
    assert text in (Path(torch.__file__).parent / file).read_text()


PACKAGE = private_api.__name__
WORKER = Path(private_api.__file__).parents[1]


def attributes_in(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the attributes of private names that a module of the worker reads.

    Yields:
        The module of the feature and the attribute: "graph_api", "OpOverload._schema".
    """
    tree = ast.parse(path.read_text())
    imported: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            module = str(node.module).removeprefix(PACKAGE).strip(".")
            for alias in node.names:
                names = [module, alias.name] if module else [alias.name]
                imported[alias.asname or alias.name] = names
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            module, *names = [*imported.get(first, [""]), *rest]
            known = module.endswith("_api") and names[0] != "FEATURE"
            if known and re.fullmatch(r"(?!__)\w+", "".join(names[1:2])):
                yield module, ".".join(names[:2])


def test_features_list_each_private_attribute_the_worker_reads() -> None:
    """If one moves, its feature is missing; without the list, a run would end."""
    read = {
        attribute
        for path in WORKER.rglob("*.py")
        if path.parent.name != "private_api"
        for attribute in attributes_in(path)
    }
    listed = {
        (module, ".".join(path.split(".")[:2]))
        for module, api in vars(private_api).items()
        if module.endswith("_api")
        for path in api.FEATURE.used
    }
    assert ("fast_build_api", "CppBuilder.build") in read
    assert read - listed == set()


def test_each_feature_describes_the_consequence_of_a_missing_name() -> None:
    assert all(f.without for f in FEATURES)
    assert len({f.name for f in FEATURES}) == len(FEATURES)


@pytest.fixture
def gone() -> Feature:
    return Feature(
        "fast build",
        names={
            "CppBuilder": "torch._inductor.cpp_builder:RenamedBuilder",
            "kept": "torch.nn",
        },
        attributes=("kept.Renamed",),
        without="slower",
    )


def test_missing_name_is_an_error_of_shrinkfx(gone: Feature) -> None:
    assert "torch._inductor.cpp_builder.RenamedBuilder" in gone.missing
    with pytest.raises(MissingName, match=r"fast build: torch .*nn.Renamed"):
        gone.look_up("kept.Renamed")
    with pytest.raises(MissingName, match=r"fast build: torch .*RenamedBuilder"):
        gone.resolve("CppBuilder")
    with pytest.raises(AttributeError, match="lists no name"):
        gone.resolve("another")
