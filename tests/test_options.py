"""An option is said once: what is made of it agrees, and nothing of it is forgotten."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import shrinkfx
from shrinkfx import api
from shrinkfx import api as reducing
from shrinkfx.cli.parser import list_options as all_options
from shrinkfx.cli.parser import make_parser
from shrinkfx.cli.reference import regenerate_tables
from shrinkfx.cli.task import read_options
from shrinkfx.errors import UsageError
from shrinkfx.options.options import BudgetOptions, Options, Sweeping
from shrinkfx.program.listing.printed_program import Kind
from shrinkfx.protocol.flags import (
    Option,
    list_record_options,
    remove_markup,
    require_valid_values,
)
from shrinkfx.protocol.requests import CheckOptions, ComparisonOptions

ROOT = Path(__file__).resolve().parents[1]
README, REFERENCE = ROOT / "README.md", ROOT / "docs" / "reference.md"
MODEL = Path("model.pt2")
OF_RUNS = [*list_record_options(Options)]
OF_SWEEPS = [*list_record_options(Sweeping)]

NO_OPTIONS = {
    "model",
    "name",
    "command",
    "cwd",
    "lacking",
    "in_script",
    "others",
    "sweeping",
}
"""Fields of ``Options`` that have no flag of their own."""

NO_FIELDS = {"path", "args", "kwargs", "dynamic_shapes", "command"} | {
    "quiet",
    "listener",
}
"""Arguments of ``minify`` that are no options; ``path`` is ``model``, or an object."""

EACH = pytest.mark.parametrize("option", OF_RUNS, ids=lambda option: option.name)


def test_each_field_of_the_options_record_is_an_option() -> None:
    names = {field.name for field in fields(Options)}
    assert names - {option.name for option in OF_RUNS} == NO_OPTIONS
    assert {field.name for field in fields(Sweeping)} == {o.name for o in OF_SWEEPS}


def test_each_option_is_on_the_command_line_once() -> None:
    """A record that is in no group of the parser's would be forgotten there."""
    names = [option.name for option in all_options()]
    flags = [flag for option in all_options() for flag in option.flags]
    assert len(set(names)) == len(names)
    assert len(set(flags)) == len(flags)
    assert {option.name for option in (*OF_RUNS, *OF_SWEEPS)} <= set(names)


def test_keywords_of_minify_and_options_are_the_same() -> None:
    keywords = inspect.signature(shrinkfx.minify).parameters.keys()
    assert keywords - NO_FIELDS == {option.name for option in OF_RUNS}
    told = inspect.getdoc(shrinkfx.minify) or ""
    assert [name for name in keywords if f"\n    {name}: " not in told] == []


def test_keywords_match_the_flag_names_with_three_exceptions() -> None:
    """As the reference says."""
    others = {o.name for o in OF_RUNS if o.flag[2:].replace("-", "_") != o.name}
    assert others == {"timeout_s", "inductor", "environment"}


def test_resume_accepts_the_options_that_may_change() -> None:
    keywords = inspect.signature(api.resume).parameters.keys()
    anew = {option.name for option in OF_RUNS if option.works_with_resume}
    assert anew == {option.name for option in list_record_options(BudgetOptions)}
    assert anew <= keywords


VALUES = {
    "preload": ["custom.py"],
    "strategies": ["drop_nodes"],
    "keep": ["sizes"],
    "inductor": {"max_autotune": True},
    "environment": {"A": "1"},
}


@EACH
def test_keyword_of_minify_reaches_the_run(
    monkeypatch: pytest.MonkeyPatch, option: Option
) -> None:
    asked: list[Options] = []
    monkeypatch.setattr(reducing, "reduce", lambda options, _: asked.append(options))
    value = VALUES.get(option.name, option.takes(3))
    shrinkfx.minify(MODEL)
    shrinkfx.minify(MODEL, **{option.name: value})
    usual, other = asked
    assert usual == Options(MODEL)
    assert_differs_in(option, usual, other)
    seen = getattr(other, option.name)
    assert seen == (tuple(value) if isinstance(value, list) else type(seen)(value))


def assert_differs_in(option: Option, usual: Options, other: Options) -> None:
    value = getattr(other, option.name)
    assert value != getattr(usual, option.name)
    assert other == replace(usual, **{option.name: value})


WORDS = {
    "preload": "custom.py",
    "strategies": "drop_nodes,",
    "keep": "sizes",
    "inductor": "max_autotune=True",
    "environment": "A=1",
}


def typed(option: Option) -> list[str]:
    """Say something other than the default."""
    if option.takes is bool or option.const:
        return [option.flag]
    others = [choice for choice in option.choices if choice != option.default]
    return [option.flag, *(others[:1] or [WORDS.get(option.name, "3")])]


def parse_options(*words: str) -> Options:
    return read_options(make_parser().parse_args(["model.pt2", *words]), "")


@EACH
def test_flag_reaches_the_run(option: Option) -> None:
    usual, other = parse_options(), parse_options(*typed(option))
    assert usual == Options(MODEL)
    assert_differs_in(option, usual, other)
    seen = getattr(other, option.name)
    expected = VALUES.get(option.name)
    assert expected is None or seen == type(seen)(expected)


@pytest.mark.parametrize("option", OF_SWEEPS, ids=lambda option: option.name)
def test_flag_of_a_sweep_sets_the_option_and_is_refused_without_a_sweep(
    option: Option,
) -> None:
    words = [option.flag] if option.const else [option.flag, "0"]
    about: dict[str, Any] = {option.name: option.const or 0}
    assert parse_options("--dynamic-sweep", *words).sweeping == Sweeping(**about)
    with pytest.raises(UsageError, match=f"{option.flag} only applies to a sweep"):
        parse_options(*words)


ALL = Options(
    Path("/a/model.pt2"),
    until="nan",
    match="x",
    check="./fails {}",
    baseline_runs=3,
    guard_pages="on",
    rtol=0.5,
    atol=0.0,
    strict=True,
    timeout_s=1.5,
    inputs=Path("/a/inputs.pt"),
    preload=("json", "/a/custom.py"),
    device="cuda",
    backend="interpreter",
    arch="sm_80",
    probe="hints",
    all_probes=True,
    inductor={"max_autotune": True},
    environment={"A": "1"},
    max_checks=5,
    max_minutes=2.5,
    max_disk=0.5,
    build="stock",
    strategies=("drop_nodes",),
    command="shrinkfx model.pt2",
    cwd=Path("/a"),
    sweeping=Sweeping(3, 1, 64, "beyond"),
)
BEFORE = json.loads((Path(__file__).parent / "cli" / "options.json").read_text())
"""What the first release keeps of these in a journal, without options of later ones."""


def test_journal_options_of_the_first_release_are_read_and_written() -> None:
    assert Options.from_json(BEFORE) == ALL
    written = json.loads(json.dumps(ALL.to_json()))
    assert {name: written[name] for name in BEFORE} == BEFORE


@EACH
def test_journal_stores_each_option(option: Option) -> None:
    asked = replace(
        parse_options(*typed(option)), model=MODEL.resolve(), cwd=Path.cwd()
    )
    read = Options.from_json(json.loads(json.dumps(asked.to_json())))
    if option.name == "inputs":
        asked = replace(asked, inputs=Path("3").resolve())
    assert read == replace(asked, out=None)


def test_unknown_option_in_the_journal_is_refused() -> None:
    with pytest.raises((TypeError, LookupError)):
        Options.from_json({**BEFORE, "made_up": 1})


def test_check_options_include_the_comparison_settings() -> None:
    for option in list_record_options(ComparisonOptions):
        value: Any = option.takes(3)
        asked = replace(Options(MODEL), **{option.name: value})
        assert asked.comparison_settings == {option.name: value}
        told = CheckOptions.from_line(asked.compared(CheckOptions()).to_line())
        assert getattr(told, option.name) == value
    assert Options(MODEL).comparison_settings == {}


def test_reference_has_the_generated_option_tables() -> None:
    page = REFERENCE.read_text()
    assert regenerate_tables(page) == page, "run: make reference"
    rows = page.splitlines(keepends=True)
    stale = [row for row in rows if not row.startswith("| `--until")]
    assert len(stale) == len(rows) - 1
    assert regenerate_tables("".join(stale)) == page


def test_readme_names_only_existing_options() -> None:
    rows = [row for row in README.read_text().splitlines() if row.startswith("| `--")]
    told = {flag for row in rows for flag in re.findall(r"`(--[a-z-]+)", row)}
    assert told <= {flag for option in all_options() for flag in option.flags}
    assert len(told) > 10


def test_markup_is_removed_from_the_help_text() -> None:
    text = "a `torch.save`d tuple ([below](#inputs)) of `inputs(**sizes)`"
    assert remove_markup(text) == "a torch.saved tuple (below) of inputs(**sizes)"


def test_default_options_are_valid() -> None:
    require_valid_values(Options(MODEL))
    require_valid_values(Sweeping())
    for option in all_options():
        assert not option.choices or option.default in (None, *option.choices)
        assert {type(choice) for choice in option.choices} <= {str}  # argparse shows it


def test_keep_option_accepts_known_kinds_and_all() -> None:
    assert parse_options("--keep", "sizes,values").keep == ("sizes", "values")
    assert parse_options("--keep", "all").keep == tuple(map(str, Kind))
    with pytest.raises(UsageError, match=r"--keep size: .*did you mean sizes"):
        require_valid_values(parse_options("--keep", "size"))
