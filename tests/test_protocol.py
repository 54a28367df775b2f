"""Messages are lines of JSON, and read back as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.random_listings import listings

from shrinkfx.findings.operators import Operator, OperatorMismatch
from shrinkfx.findings.record import Explanation
from shrinkfx.program.edits import Rewrite
from shrinkfx.program.listing.changes import Refill, Resize, Write
from shrinkfx.program.listing.printed_program import PrintedProgram, Run
from shrinkfx.program.listing.tensor_specs import (
    Constant,
    Counted,
    Initializer,
    Opaque,
    Saved,
    Seeded,
    Sparse,
)
from shrinkfx.program.sizes import Place, Space, Symbol
from shrinkfx.program.uninstalled_files import Loading, UninstalledFiles
from shrinkfx.protocol import files  # noqa: F401 - its records are messages, too
from shrinkfx.protocol.answers import (
    COMMON_ANSWERS,
    Answer,
    Built,
    Checked,
    Difference,
    Ending,
    OpenSizes,
    Ready,
)
from shrinkfx.protocol.choices import Build, Step
from shrinkfx.protocol.record import (
    Message,
    Named,
    Reported,
    read_older,
    to_json_with_old_names,
)
from shrinkfx.protocol.requests import (
    CheckCandidate,
    CheckOptions,
    Describe,
    Request,
    Setup,
    Task,
)


@pytest.mark.parametrize(
    "message",
    [
        Setup("/tmp/here"),
        Setup("/tmp/here", "m.pt2", "i.pt", ("ops", "lib.so"), "cuda", {"a": True}),
        Request(
            CheckCandidate({"keep": ["relu"]}),
            CheckOptions(calls=2),
            2.5,
            1 << 20,
            fresh=True,
        ),
        Request(Describe()),
        Ending(
            "signal",
            11,
            "run",
            Checked(Difference("nan", "3 of 4", "values"), ("add",)),
            1.5,
            log="two\nlines ä",
            built=Built(Build.FAST, Step.LINK),
        ),
        Ending("exit", answer=OpenSizes(Space((Symbol("s0", 2, None, 4),)))),
        Ready(
            "cannot read",
            "m.pt2",
            "look, or --env A=1",
            {"torch": "2.13"},
            {"ops": ""},
            {},
            4.0,
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_example_message_survives_serialization(message: Message) -> None:
    line = message.to_line()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert type(message).from_line(line) == message
    assert type(message).from_line(line.encode()) == message


def test_renamed_fields_are_written_and_read_under_their_old_names() -> None:
    roll = Operator("roll", "aten.roll.default")
    mismatch = OperatorMismatch(roll, "declares less")
    explanation = Explanation(culprits=(roll,), mismatches=(mismatch,))
    both = json.loads(json.dumps(to_json_with_old_names(explanation)))
    assert both["guilty"] == both["culprits"] == [json.loads(roll.to_line())]
    assert both["lies"][0]["said"] == "declares less"
    assert Explanation.from_json(both) == explanation
    old = json.loads(explanation.to_line())
    old["guilty"], old["lies"] = old.pop("culprits"), old.pop("mismatches")
    old["lies"][0]["said"] = old["lies"][0].pop("difference")
    assert read_older(Explanation, old) == explanation


def test_unknown_field_is_an_error() -> None:
    ending = json.loads(Ending("exit", answer=Checked()).to_line())
    with pytest.raises(TypeError, match="Ending has no colour"):
        Ending.from_json({**ending, "colour": "red"})
    ending["answer"]["Checked"]["diference"] = None
    with pytest.raises(TypeError, match="Checked has no diference"):
        Ending.from_json(ending)
    line = Request(Describe(), CheckOptions(calls=2)).to_line()
    assert Request.from_line(line).options.calls == 2
    with pytest.raises(TypeError, match="CheckOptions has no cals"):
        Request.from_line(line.replace('"calls"', '"cals"'))
    with pytest.raises(KeyError, match="Undescribe"):
        Request.from_line(line.replace("Describe", "Undescribe"))


def test_missing_field_is_an_error_even_if_the_field_has_a_default() -> None:
    with pytest.raises(TypeError, match="Checked without differing, refused"):
        Answer.from_json({"Checked": dict.fromkeys(CHECKED - {"differing", "refused"})})
    with pytest.raises(TypeError, match=r"Ending without .*how"):
        Ending.from_json({"code": 1})


CHECKED = {field.name for field in fields(Checked)}


@pytest.mark.parametrize("task", Task.__subclasses__())
def test_task_accepts_only_its_own_answer_or_a_common_answer(
    task: type[Task],
) -> None:
    asked = object.__new__(task)
    assert task.answer in ANSWERS
    for kind in ANSWERS:
        answer = object.__new__(kind)
        if kind is task.answer or kind in COMMON_ANSWERS:
            assert asked.require(answer) is answer
        else:
            with pytest.raises(
                TypeError, match=f"answered with {task.answer.__name__}"
            ):
                asked.require(answer)


ANSWERS: list[type[Answer]] = Answer.__subclasses__()


def test_every_answer_type_belongs_to_a_task() -> None:
    asked_for = {task.answer for task in Task.__subclasses__()}
    assert {*asked_for, *COMMON_ANSWERS} == {*ANSWERS}


OF_OTHER_ROOMS: dict[object, st.SearchStrategy[object]] = {
    Space: st.builds(
        Space,
        st.lists(st.from_type(Symbol)).map(tuple),
        st.lists(st.from_type(Place)).map(tuple),
        st.lists(st.text()).map(tuple),
        st.lists(st.text()).map(tuple),
    ),
    UninstalledFiles: st.builds(
        UninstalledFiles,
        st.dictionaries(st.text(), st.text()),
        st.lists(st.text()).map(tuple),
        st.lists(st.text()).map(tuple),
        st.lists(st.from_type(Loading)).map(tuple),
        st.lists(st.tuples(st.text(), st.integers())).map(tuple),
    ),
}
NUMBERS = st.integers() | st.floats(allow_nan=False)
OF_OTHER_ROOMS |= {
    Initializer: st.one_of(
        st.builds(Constant, NUMBERS),
        st.builds(Counted),
        st.builds(Seeded, st.text(), st.integers(), st.integers()),
        st.builds(
            Sparse,
            NUMBERS,
            st.lists(st.tuples(st.integers(0), NUMBERS), max_size=3).map(tuple),
        ),
        st.builds(Saved, st.text()),
        st.builds(Opaque, st.text()),
    ),
    PrintedProgram: listings(),
}
OF_OTHER_ROOMS[Rewrite] = st.builds(
    Rewrite,
    st.lists(
        st.builds(
            Refill,
            st.text(),
            OF_OTHER_ROOMS[Initializer],
            st.none() | st.just(Run.FAILING),
        )
        | st.builds(Resize, st.text(), st.integers(0), st.integers(0))
        | st.builds(Write, st.text(), st.text(), st.integers(0), st.text()),
        max_size=3,
    ).map(tuple),
    st.booleans(),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


def a_value(hint: object) -> st.SearchStrategy[object]:
    """Draw a value of a field's type, as JSON can hold it."""
    if hint in OF_OTHER_ROOMS:
        return OF_OTHER_ROOMS[hint]
    if get_origin(hint) is UnionType:
        return st.one_of([a_value(one) for one in get_args(hint)])
    if get_origin(hint) is tuple:
        return st.lists(a_value(get_args(hint)[0]), max_size=3).map(tuple)
    if get_origin(hint) is Mapping:
        return st.dictionaries(st.text(), a_value(get_args(hint)[1]), max_size=3)
    if hint is Any:
        return JSON
    if hint is float:
        return st.floats(allow_nan=False)
    assert isinstance(hint, type)
    return messages(hint) if issubclass(hint, Message) else st.from_type(hint)


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    if kind in (Task, Answer):
        return st.one_of([messages(one) for one in kind.__subclasses__()])
    hints = get_type_hints(kind)
    drawn = {f.name: a_value(hints[f.name]) for f in fields(kind)}
    return st.builds(kind, **drawn)


def alike(some: object, other: object) -> bool:
    """Tell whether two are equal, and of the same types all the way down."""
    if type(some) is not type(other) or some != other:
        return False
    if isinstance(some, tuple) and isinstance(other, tuple):
        return all(map(alike, some, other))
    return not is_dataclass(some) or all(
        alike(getattr(some, f.name), getattr(other, f.name)) for f in fields(some)
    )


def below(kind: type[Message]) -> Iterator[type[Message]]:
    for one in kind.__subclasses__():
        yield one
        yield from below(one)


KINDS = [
    kind
    for kind in below(Message)
    if kind.__module__.startswith("shrinkfx.protocol")
    and kind not in {Named, Reported, Task, Answer}
]
"""All that are sent: one that is added is among them."""


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(st.data())
def test_generated_message_of_every_type_survives_serialization(
    kind: type[Message], data: st.DataObject
) -> None:
    message = data.draw(messages(kind))
    line = message.to_line()
    assert line.count("\n") == 1
    assert alike(kind.from_json(json.loads(line)), message)
