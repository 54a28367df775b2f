"""Messages are lines of JSON, and read back as they were."""

from __future__ import annotations

import pytest

from shrinkfx.program.messages import Ending, Message, Ready, Request, Setup, Task


@pytest.mark.parametrize(
    "message",
    [
        Setup("/tmp/here"),
        Setup("/tmp/here", "m.pt2", "i.pt", ("ops", "lib.so"), "cuda", {"a": True}),
        Request(Task.CANDIDATE, {"keep": ["relu"]}, 2.5, 1 << 20, fresh=True),
        Request(Task.DESCRIBE),
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


def test_message_ignores_keys_of_another_version() -> None:
    ending = Ending.from_json({"how": "exit", "colour": "red"})
    assert ending == Ending("exit")
    assert Setup.from_line('{"directory": "/tmp", "later": [1]}') == Setup("/tmp")


def test_message_needs_what_has_no_default() -> None:
    with pytest.raises(TypeError, match="how"):
        Ending.from_json({"code": 1})
