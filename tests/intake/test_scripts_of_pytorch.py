"""Scripts of PyTorch's are read, and nothing of them runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.dumped import LAUNCHER, RUNNABLE

from shrinkfx.errors import LoadError
from shrinkfx.intake.dump import Kind, read_script

PATH = Path("minifier_launcher.py")


def test_launcher_yields_program_and_settings() -> None:
    script = read_script(PATH, LAUNCHER)
    assert script.kind is Kind.MINIFIER
    assert script.program == "/home/who/minifier/checkpoints/e.pt2"
    assert script.save_dir == "/home/who/minifier/checkpoints"
    assert script.inductor == {
        "comprehensive_padding": False,
        "cpp.threads": -1,
        "max_autotune": True,
    }
    assert script.environment == {"TORCHINDUCTOR_FREEZING": "1"}
    assert script.others == {
        "torch._dynamo.config.specialize_int": False,
        "torch.fx.experimental._config.use_duck_shape": False,
    }


def test_load_config_call_is_read_like_assignments() -> None:
    """Since torch 2.15 a dump sets options that imply others in this way."""
    call = "torch._inductor.config.load_config({'numerics': 'strict', 'cpp.cxx': 'x'})"
    script = read_script(PATH, LAUNCHER.replace("import _warnings", call))
    assert script.inductor["numerics"] == "strict"
    assert "omitted, because they name programs to run: cpp.cxx" in script.notes


def test_settings_that_name_programs_to_run_are_omitted() -> None:
    """A dump is read: where code is found and who compiles are none of its business."""
    said = (
        "import os\nos.environ['PYTHONPATH'] = 'x'\nos.environ['LD_PRELOAD'] = 'x.so'\n"
        "os.environ['CXX'] = 'evil'\ntorch._inductor.config.cpp.cxx = (None, 'evil')\n"
    )
    script = read_script(PATH, said + LAUNCHER)
    assert script.environment == {"TORCHINDUCTOR_FREEZING": "1"}
    assert "cpp.cxx" not in script.inductor
    assert "omitted, because they name programs to run: cpp.cxx" in script.notes


def test_omitted_settings_are_reported_in_notes() -> None:
    said = " | ".join(read_script(PATH, LAUNCHER).notes)
    assert "torch 2.12.0+cpu wrote the program, and torch 2." in said
    assert (
        "omitted, because their values are not literals: "
        "torch._dynamo.config.reorderable"
    ) in said
    assert "post_grad_custom_post_pass" in said
    assert "--until mismatch" in said
    assert "the script looks for 'no': --match" in said


def test_graph_of_torch_compile_is_runnable() -> None:
    script = read_script(Path("fx_graph_runnable_3.txt"), RUNNABLE)
    assert script.kind is Kind.RUNNABLE
    assert (script.program, script.save_dir) == ("", "")
    assert script.inductor == {"freezing": True}
    assert script.environment == {}
    (note,) = script.notes
    assert note.startswith("torch 2.12.0+cpu wrote the program, and torch 2.")


def test_after_dynamo_script_is_runnable() -> None:
    script = read_script(
        PATH, RUNNABLE.replace("repro.after_aot", "repro.after_dynamo")
    )
    assert script.kind is Kind.RUNNABLE


def test_reading_a_script_runs_none_of_its_code(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'sprung')!r}, 'w')"
    armed = f"x = {trap}\nos.environ['TORCH_X'] = {trap}\n{LAUNCHER}\n"
    armed += f"torch._inductor.config.x = {trap}\nconfig_patches = {{'a': {trap}}}\n"
    script = read_script(PATH, armed)
    assert script.kind is Kind.MINIFIER
    assert "config_patches" in " ".join(script.notes)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print('hello')", "is a Python file, but not a dump from PyTorch"),
        ("class Repro: ...", "is a Python file, but not a dump from PyTorch"),
        (
            "exported_program = torch.export.load(path)",
            ("is a Python file, but not a dump from PyTorch"),
        ),
        ("def f(:", "is not valid Python:"),
        ("x = " + "(" * 5000, "is not valid Python:"),
        ("a\0b", "is not valid Python:"),
        ("# Failure: assert | run | x\nprint()", "--verify"),
    ],
    ids=["other", "half", "no literal", "broken", "deep", "zero", "ours"],
)
def test_script_that_is_no_dump_is_refused(text: str, reason: str) -> None:
    with pytest.raises(LoadError, match=reason):
        read_script(PATH, text)
