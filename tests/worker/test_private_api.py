"""This PyTorch has the private names that shrinkfx uses. To port shrinkfx, begin here.

A failure shows the feature and the missing name. The module of the feature says what
happens without it.
"""

from __future__ import annotations

import pytest

from shrinkfx.worker.private_api import FEATURES, build_api
from shrinkfx.worker.private_api.feature import Feature, MissingName

CHECKS = [(f, what) for f in FEATURES for what in f.checks()]


@pytest.mark.parametrize(
    ("feature", "what"), CHECKS, ids=[f"{f.name}: {what}" for f, what in CHECKS]
)
def test_torch_has_each_name_of_a_feature(feature: Feature, what: str) -> None:
    assert not feature.checks()[what]()


def test_each_feature_describes_the_consequence_of_a_missing_name() -> None:
    assert all(f.without and f.read_in for f in FEATURES)
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
        texts={build_api.INTERFACE: ("no such line",)},
        without="slower",
    )


def test_messages_have_the_missing_names(gone: Feature) -> None:
    said = [check() for check in gone.checks().values()]
    assert "torch._inductor.cpp_builder.RenamedBuilder" in gone.missing
    assert any("torch.nn.Renamed" in text for text in said)
    assert any("'no such line' in torch/_inductor" in text for text in said)


def test_missing_name_is_an_error_of_shrinkfx(gone: Feature) -> None:
    with pytest.raises(MissingName, match=r"fast build: torch .*RenamedBuilder"):
        gone.resolve("CppBuilder")
    with pytest.raises(AttributeError, match="lists no name"):
        gone.resolve("another")
