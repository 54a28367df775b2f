"""What fails, in a title and in sentences, as somebody would say it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.report.explanation.record import Explanation
from shrinkfx.report.in_compiler import ENDS, begun
from shrinkfx.report.in_compiler import told as said_of_own
from shrinkfx.report.issue.code import Traits
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.plain import short, without_paths
from shrinkfx.report.issue.to_author import addressed_to

_NAMED = 3
"""Operators that a sentence names."""

_TITLE = 120
"""Characters of a title."""


def title_of(facts: IssueFacts, explanation: Explanation, traits: Traits) -> str:
    """Name the failure as a list of issues does."""
    if (wrong := addressed_to(explanation)) is not None:
        what = f"{wrong.name}: its {wrong.what} is wrong"
        return _fitting(f"{what} (AOTInductor: {said})" for said in _in_short(facts))
    if facts.inside:
        return _fitting(_of_own_function(facts, explanation))
    if facts.needs_own:
        what = begun(said_of_own(facts.in_compiler, anonymous=facts.anonymous))
        said = _in_short(facts)
        whole = f"{what}; without that nothing fails (AOTInductor: {said[0]})"
        said += [_FAILS[facts.kind]] if facts.kind in _FAILS else []
        return _fitting([whole, *(f"{what} (AOTInductor: {text})" for text in said)])
    what = _named(facts, explanation)
    beside = [traits.dtype, "dynamic shapes" if traits.dynamic else ""]
    beside += [f"{traits.writes} written in place" if traits.writes else ""]
    on = ", ".join(filter(None, beside))
    whats = [f"{what} ({on})", what] if on else [what]
    if explanation.values is not None and explanation.values.missized:
        whats = ["a dynamic size is worked out wrongly"]
    said = _in_short(facts)
    return _fitting(f"[AOTInductor] {what}: {text}" for what in whats for text in said)


def _of_own_function(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    """Say what a function of the user's own does, and when; then without that."""
    what = "Code of a preload" if facts.anonymous else facts.inside
    does = f"{what} {ENDS[facts.kind]} while AOTInductor compiles"
    yield f"{does} {_named(facts, explanation)}"
    yield f"{does} a program"


def _named(facts: IssueFacts, explanation: Explanation) -> str:
    names = operators(facts, explanation)
    return " + ".join(names) if len(names) <= _NAMED else f"{len(names)} operators"


def operators(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """List what is at fault, as far as known, or else all that is left."""
    guilty = [each.operator for each in explanation.guilty]
    if len(guilty) > _NAMED or not guilty:
        guilty = [name for name in facts.targets if _does_something(name)]
    return list(dict.fromkeys(map(short, guilty or facts.targets)))


def _does_something(name: str) -> bool:
    return not name.startswith(("<built-in", "<function"))


def _fitting(titles: Iterable[str]) -> str:
    """Take the first that is no longer than a title; else begin the last one."""
    known = [*titles]
    fitting = (title for title in known if len(title) <= _TITLE)
    return next(fitting, _cut(known[-1], _TITLE))


def _in_short(facts: IssueFacts) -> list[str]:
    """Say how it fails; and say it shorter, without what class its error is of."""
    said = _in_words(facts)
    bare = _CLASSES.sub("", said) or said
    fails = f"{_FAILS[facts.kind]}: " if facts.kind in _FAILS else ""
    return [f"{fails}{text}" for text in dict.fromkeys([said, bare])]


_FAILS = {
    Kind.COMPILE_ERROR: "fails to compile",
    Kind.LOAD_ERROR: "compiled package does not load",
}
"""What an error is in the way of, which says it without its words."""

_CLASSES = re.compile(r"^(?:[\w.]*(?:Error|Exception): )+")


def _in_words(facts: IssueFacts) -> str:
    first = _first_line(facts.said)
    match facts.kind:
        case Kind.MISMATCH:
            return _metadata(first) or "compiled result differs from eager"
        case Kind.NAN:
            return "NaN or inf in the compiled result, eager is finite"
        case Kind.HANG:
            return f"hangs in {facts.stage}"
        case Kind.OOM:
            return "asks for far more memory than eager"
        case Kind.IMA:
            return f"illegal memory access at {_when(facts.stage)} time"
        case Kind.CRASH:
            return f"crash at {_when(facts.stage)} time ({first})"
        case Kind.CHECK_INPUTS:
            return "valid inputs are refused by AOTI_RUNTIME_CHECK_INPUTS=1"
    return f"{_message(first)}"


def _when(stage: Stage) -> str:
    return "compile" if stage is Stage.COMPILE else "run"


_METADATA = re.compile(
    r".*?\b(dtype|shape|device|layout|strides?) (.*), eager gives (.*)"
)


def _metadata(said: str) -> str:
    """Say of a result that is of another type what it is."""
    found = _METADATA.match(said)
    if found is None:
        return ""
    got, wanted = (_TORCHS.sub(r"\1", text) for text in found.groups()[1:])
    return f"wrong {found[1]}, {got} instead of {wanted}"


_TORCHS = re.compile(r"torch\.(?:Size\()?([^()]+)\)?")


def _message(first: str) -> str:
    """Leave out what class an error is of, where it says more."""
    kind, _, message = first.partition(": ")
    return message if message and re.fullmatch(r"[\w.]+", kind) else first


def sentence(facts: IssueFacts, explanation: Explanation, traits: Traits) -> str:
    """Say in a sentence what fails."""
    what = _joined([f"`{name}`" for name in operators(facts, explanation)])
    what += f" on {traits.dtype} tensors" if traits.dtype else ""
    what += ", with dynamic shapes," if traits.dynamic else ""
    compiled = f"Compiled with AOTInductor, a program that calls {what} "
    eager = "eager runs it without an error" if facts.compared else ""
    but = f"; {eager}." if eager else "."
    match facts.kind:
        case Kind.COMPILE_ERROR:
            what = what.removesuffix(",")
            return f"AOTInductor cannot compile a program that calls {what}{but}"
        case Kind.LOAD_ERROR:
            return (
                f"What AOTInductor makes of a program that calls {what} cannot be "
                f"loaded{but}"
            )
        case Kind.MISMATCH:
            return f"{compiled}returns another result than eager."
        case Kind.NAN:
            return f"{compiled}returns NaN or inf where eager's result is finite."
        case Kind.HANG if facts.stage is Stage.COMPILE:
            what = what.removesuffix(",")
            return f"AOTInductor does not finish compiling {what}{but}"
        case Kind.CHECK_INPUTS:
            return (
                f"{compiled}refuses inputs that it was exported for, when told to "
                "check them (`AOTI_RUNTIME_CHECK_INPUTS=1`)."
            )
    return f"{compiled}{_does(facts)}{but}"


def _does(facts: IssueFacts) -> str:
    match facts.kind:
        case Kind.ASSERT:
            return "fails an assertion of its own when it runs"
        case Kind.IMA:
            return "reads or writes memory that is not its own"
        case Kind.CRASH:
            return "kills the process"
        case Kind.HANG:
            return "does not return"
        case Kind.OOM:
            return "asks for more memory than there is"
    name = facts.said.partition(":")[0]
    error = f"`{name}`" if re.fullmatch(r"\w*(Error|Exception)", name) else "an error"
    return f"raises {error} when it runs"


def circumstances(facts: IssueFacts, traits: Traits) -> list[str]:
    """Say what the failure takes, where that is anything."""
    said = []
    if facts.writes:
        what = traits.writes or "an input or a weight"
        said.append(f"The program changes {what} in place.")
    if facts.passes:
        said.append("It passes with the inputs `passing`, and fails with `failing`.")
    if facts.calls > 1:
        said.append(f"It fails in call {facts.calls} of the loaded package.")
    if facts.inductor:
        said.append(f"It is compiled with the options `{facts.inductor}`.")
    if facts.in_compiler.places and not facts.needs_own:
        anonymous = facts.anonymous
        does = said_of_own(facts.in_compiler, anonymous=anonymous, mark="`")
        said.append(f"Code that is not PyTorch's is in the compiler: {does}.")
    # That it is told to check its inputs is in the sentence before this one.
    told = [_CHECKS_INPUTS] if facts.kind is Kind.CHECK_INPUTS else []
    if needed := [f"`{name}`" for name in facts.environment if name not in told]:
        # Where no GPU was, nobody has seen what it needs there.
        needs = "The script sets {}." if facts.interpreted else _NEEDS
        said.append(needs.format(_joined(needed)))
    return said


_CHECKS_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
_NEEDS = "It needs {}, which the script sets."


def expected(facts: IssueFacts) -> str:
    """Say what should happen."""
    if facts.kind is Kind.CHECK_INPUTS:
        return "inputs that the exported program takes are taken."
    if not facts.compared:
        return "the package compiles, loads and runs, or refuses the inputs in words."
    ends = "an end, with " if facts.kind is Kind.HANG else ""
    return f"{ends}the same result as in eager."


def actual(facts: IssueFacts) -> str:
    """Say what does happen."""
    first = without_paths(_first_line(facts.said))
    often = f", in about {facts.rate:.0%} of runs" if facts.rate < 1 else ""
    if facts.kind is Kind.HANG:
        return f"no end within the time limit{often}."
    return f"{_quoted(first)}{often}."


def on_versions(tested: Mapping[str, bool]) -> str:
    """Write on which of the tested versions of PyTorch the repro fails.

    >>> on_versions({"2.13.0": False, "2.14.1": True, "2.15.0": True})
    'Fails on torch 2.14.1 and 2.15.0; passes on 2.13.0.'
    """
    fails = _enumerated([version for version, each in tested.items() if each])
    passes = _enumerated([version for version, each in tested.items() if not each])
    if fails and passes:
        return f"Fails on torch {fails}; passes on {passes}."
    return f"{'Fails' if fails else 'Passes'} on torch {fails or passes}."


def _enumerated(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def _quoted(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _first_line(text: str) -> str:
    return next((row.strip() for row in text.splitlines() if row.strip()), "")


def _joined(words: Sequence[str]) -> str:
    shown = [*words[:_NAMED]]
    if len(words) > _NAMED:
        shown.append(f"{len(words) - _NAMED} others")
    return _enumerated(shown)


def _cut(text: str, most: int) -> str:
    """Keep whole words."""
    if len(text) <= most:
        return text
    return f"{text[: most - 3].rpartition(' ')[0]} ..."
