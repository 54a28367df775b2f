"""What a door finds, and what the user says beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from shrinkfx.intake.found import ResolvedProgram
from shrinkfx.options.options import Options

FOUND = ResolvedProgram(
    program=Path("found.pt2"),
    inputs=Path("found.pt"),
    inductor={"max_autotune": True, "freezing": True},
    environment={"A": "1", "B": "1"},
    preload=("ops", "more.py"),
    device="cpu",
)


def test_options_take_program_and_settings_from_resolved_program() -> None:
    asked = FOUND.to_options(Options(model=Path("script.py"), until="assert"))
    assert (asked.model, asked.inputs) == (FOUND.program, FOUND.inputs)
    assert asked.inductor == FOUND.inductor
    assert asked.environment == FOUND.environment
    assert (asked.preload, asked.device) == (FOUND.preload, "cpu")
    assert asked.until == "assert"
    assert asked.called == "script.py"  # a door's own file is called program.pt2
    assert FOUND.to_options(replace(asked, name="serve.py")).called == "serve.py"


def test_user_options_override_resolved_program() -> None:
    said = Options(
        model=Path("script.py"),
        inputs=Path("mine.pt"),
        inductor={"freezing": False},
        environment={"B": "2"},
        preload=("ops", "mine"),
        device="cuda",
    )
    asked = FOUND.to_options(said)
    assert (asked.inputs, asked.device) == (Path("mine.pt"), "cuda")
    assert asked.inductor == {"max_autotune": True, "freezing": False}
    assert asked.environment == {"A": "1", "B": "2"}
    assert asked.preload == ("more.py", "ops", "mine")
