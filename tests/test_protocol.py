"""Messages are lines of JSON, and read back as they were."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shrinkfx.protocol.answers import Ending, Ready
from shrinkfx.protocol.record import Message
from shrinkfx.protocol.requests import CheckOptions, Request, Setup
from shrinkfx.protocol.tasks import CheckCandidate, Describe, Task


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
        Ending("signal", 11, "run", {"path": "a"}, 1.5, 3.0, 1 << 30, "two\nlines ä"),
        Ready("cannot read", "m.pt2", "look", {"torch": "2.13"}, {"ops": ""}, {}, 4.0),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_survives_its_line(message: Message) -> None:
    line = message.to_line()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert type(message).from_line(line) == message
    assert type(message).from_line(line.encode()) == message


def test_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="Ending has no colour"):
        Ending.from_json({"how": "exit", "colour": "red"})
    line = Request(Describe(), CheckOptions(calls=2)).to_line()
    assert Request.from_line(line).options.calls == 2
    with pytest.raises(TypeError, match="CheckOptions has no cals"):
        Request.from_line(line.replace('"calls"', '"cals"'))
    with pytest.raises(KeyError, match="Undescribe"):
        Request.from_line(line.replace("Describe", "Undescribe"))


def a_value(hint: object) -> st.SearchStrategy[object]:
    """Draw a value of a field's type, as JSON can hold it."""
    if get_origin(hint) is UnionType:
        return st.one_of([a_value(one) for one in get_args(hint)])
    if get_origin(hint) is tuple:
        return st.lists(a_value(get_args(hint)[0])).map(tuple)
    if get_origin(hint) is Mapping:
        return st.dictionaries(st.text(), st.integers())
    if hint is float:
        return st.floats(allow_nan=False)
    assert isinstance(hint, type)
    return st.from_type(hint)


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    hints = get_type_hints(kind)
    drawn = {f.name: a_value(hints[f.name]) for f in fields(kind)}
    return st.builds(kind, **drawn)


@given(st.data())
def test_every_request_survives_its_line(data: st.DataObject) -> None:
    task = data.draw(st.one_of([messages(kind) for kind in Task.__subclasses__()]))
    options = data.draw(messages(CheckOptions))
    assert isinstance(task, Task)
    assert isinstance(options, CheckOptions)
    request = Request(task, options, fresh=data.draw(st.booleans()))
    again = Request.from_line(request.to_line())
    assert again == request
    assert type(again.task) is type(task)
    for field in fields(options):
        was, now = getattr(options, field.name), getattr(again.options, field.name)
        assert type(now) is type(was), field.name


@given(st.data())
def test_every_other_message_survives_its_line(data: st.DataObject) -> None:
    kinds: list[type[Message]] = [Setup, Ending, Ready]
    kind = data.draw(st.sampled_from(kinds))
    message = data.draw(messages(kind))
    line = json.dumps(vars(message), default=list)
    assert kind.from_json(json.loads(line)) == message


def test_message_needs_what_has_no_default() -> None:
    with pytest.raises(TypeError, match="how"):
        Ending.from_json({"code": 1})
