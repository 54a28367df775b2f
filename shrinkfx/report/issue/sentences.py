"""The failure as a title and as sentences of an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from shrinkfx.failure.signature import Kind, Stage
from shrinkfx.findings.record import Explanation
from shrinkfx.report.in_compiler import ENDS, format_title_part
from shrinkfx.report.in_compiler import describe_custom_code as said_of_own
from shrinkfx.report.issue.code import Traits
from shrinkfx.report.issue.facts import IssueFacts
from shrinkfx.report.issue.plain import strip_default_overload, strip_paths
from shrinkfx.report.issue.to_author import find_incorrect_operator

_NAMED = 3
"""Maximum number of operators that a sentence names."""

_TITLE = 120
"""Maximum characters of a title."""


def title_of(facts: IssueFacts, explanation: Explanation, traits: Traits) -> str:
    """Return the title in the style of PyTorch's issues: symptom, then operator."""
    head, detail = _symptom(facts)
    bare = re.sub(r" (?:of|in|compiled from|when \w+)$", "", head)
    if (wrong := find_incorrect_operator(explanation)) is not None:
        texts = dict.fromkeys((", ".join(filter(None, [bare, detail])), bare))
        return _fitting(f"{wrong.title} (AOTInductor: {text})" for text in texts)
    if facts.inside:
        return _fitting(_of_own_function(facts, explanation))
    if (inputs := _inputs_at_fault(facts, explanation, bare)) is not None:
        return _fitting(f"[AOTInductor] {text}" for text in inputs)
    custom = []
    what, on = _named(facts, explanation), f" for {traits.dtype} inputs"
    if facts.needs_own:
        custom = [format_title_part(facts.in_compiler, what, anonymous=facts.anonymous)]
    extras = ["dynamic shapes"] if traits.dynamic else []
    extras += [f"{traits.writes} written in place"] if traits.writes else []
    where = f"{what}{on if traits.dtype else ''}"
    if explanation.values is not None and explanation.values.missized:
        what = where = "a miscomputed dynamic size"
        head, extras = f"{bare} because of", []
    wheres = [_with(where, [*extras, *custom]), _with(what, custom)]
    details = [*dict.fromkeys([detail, _CLASSES.sub("", detail)])]
    details += [""] if facts.needs_own and detail else []
    return _fitting(
        f"[AOTInductor] {head} {where}" + (f": {text}" if text else "")
        for where in dict.fromkeys(wheres)
        for text in details
    )


def _inputs_at_fault(
    facts: IssueFacts, explanation: Explanation, symptom: str
) -> tuple[str, ...] | None:
    """Return title texts that name the invalid input; None if no input is invalid."""
    if explanation.inputs:
        first = explanation.inputs.partition(". ")[0]
        first = f"{first[:1].lower()}{first[1:]}"
        return f"{symptom}: {first}", first
    if facts.kind is not Kind.CHECK_INPUTS:
        return None
    refused = explanation.chain.refusal if explanation.chain is not None else None
    name = "an input"
    if refused is not None and refused.input is not None:
        name = f"input {refused.input.name}"
        name += "" if refused.dim is None else f", dim {refused.dim}"
    rejects = f"AOTI_RUNTIME_CHECK_INPUTS=1 rejects {name}"
    return f"{rejects}: {_message(_first_line(facts.message))}", rejects


def _with(what: str, extras: Sequence[str]) -> str:
    return f"{what} with {_enumerated(extras)}" if extras else what


def _of_own_function(facts: IssueFacts, explanation: Explanation) -> Iterator[str]:
    """Yield titles about a user's function that hangs or crashes, the longest first."""
    what = "Code of a preload module" if facts.anonymous else facts.inside
    does = f"{what} {ENDS[facts.kind]} while AOTInductor compiles"
    yield f"{does} {_named(facts, explanation)}"
    yield f"{does} a program"


def _named(facts: IssueFacts, explanation: Explanation) -> str:
    names = list_named_operators(facts, explanation)
    return " + ".join(names) if len(names) <= _NAMED else f"{len(names)} operators"


def list_named_operators(facts: IssueFacts, explanation: Explanation) -> list[str]:
    """List the culprit operators if known, otherwise all operators that remain."""
    culprits = [each.operator for each in explanation.culprits]
    if len(culprits) > _NAMED or not culprits:
        python = ("<built-in", "<function")
        culprits = [name for name in facts.targets if not name.startswith(python)]
    return list(dict.fromkeys(map(strip_default_overload, culprits or facts.targets)))


def _fitting(titles: Iterable[str]) -> str:
    """Return the first title that is short enough; otherwise shorten the last one."""
    known = [*titles]
    shortened = f"{known[-1][: _TITLE - 3].rpartition(' ')[0]} ..."
    return next((title for title in known if len(title) <= _TITLE), shortened)


_CLASSES = re.compile(r"^(?:[\w.]*(?:Error|Exception): )+")


def _symptom(facts: IssueFacts) -> tuple[str, str]:
    """Return the text before the operators in the title, and the detail after them."""
    first = _first_line(facts.message)
    compiles = facts.stage is Stage.COMPILE
    when = "when compiling" if compiles else "when running"
    match facts.kind:
        case Kind.MISMATCH:
            return _metadata(first) or ("wrong result of", "")
        case Kind.NAN:
            return "NaN or inf in the result of", ""
        case Kind.HANG:
            return f"hang {when}", ""
        case Kind.OOM:
            return f"excessive memory use {when}", ""
        case Kind.IMA:
            return f"illegal memory access {when if compiles else 'in'}", ""
        case Kind.CRASH if re.fullmatch(r"SIG\w+", first):
            return f"{first} {when}", ""
        case Kind.CRASH:
            return f"crash {when}", first
        case Kind.CHECK_INPUTS:
            return "AOTI_RUNTIME_CHECK_INPUTS=1 rejects an input of", _message(first)
        case Kind.COMPILE_ERROR:
            return "compile error in", first
        case Kind.LOAD_ERROR:
            return "cannot load the package compiled from", first
        case Kind.ASSERT if "index out of bounds" in first:
            return "index out of bounds in", ""
        case Kind.ASSERT:
            return "assertion failure in", _message(first)
    return _error(first)


def _error(first: str) -> tuple[str, str]:
    name, _, message = first.partition(": ")
    if re.fullmatch(r"[\w.]*(?:Error|Exception)", name):
        return f"{name} in", message
    return "error in", _message(first)


_METADATA = re.compile(
    r".*?\b(dtype|shape|device|layout|strides?) (.*), eager gives (.*)"
)


def _metadata(message: str) -> tuple[str, str] | None:
    """Name the property of a result that differs, and both values."""
    found = _METADATA.match(message)
    if found is None:
        return None
    got, wanted = (_TORCHS.sub(r"\1", text) for text in found.groups()[1:])
    return f"wrong {found[1]} of", f"{got} instead of {wanted}"


_TORCHS = re.compile(r"torch\.(?:Size\()?([^()]+)\)?")


def _message(first: str) -> str:
    """Remove the class of an error if a message follows."""
    kind, _, message = first.partition(": ")
    return message if message and re.fullmatch(r"[\w.]+", kind) else first


def format_failure_sentence(
    facts: IssueFacts, explanation: Explanation, traits: Traits
) -> str:
    """Return the sentence that describes the failure."""
    calls = _joined([f"`{name}`" for name in list_named_operators(facts, explanation)])
    calls += f" on {traits.dtype} tensors" if traits.dtype else ""
    shapes = " with dynamic shapes" if traits.dynamic else ""
    program = f"a program{shapes} that calls {calls}"
    eager = " Eager runs it without an error." if facts.compared else ""
    compiled = f"When compiled with AOTInductor, {program}"
    match facts.kind:
        case Kind.COMPILE_ERROR:
            return f"AOTInductor cannot compile {program}.{eager}"
        case Kind.LOAD_ERROR:
            return (
                f"The package that AOTInductor compiles from {program} cannot be "
                f"loaded.{eager}"
            )
        case Kind.MISMATCH:
            return f"{compiled} returns a result different from eager."
        case Kind.NAN:
            return f"{compiled} returns NaN or inf where eager returns finite values."
        case Kind.HANG if facts.stage is Stage.COMPILE:
            return f"AOTInductor does not finish compiling {program}.{eager}"
        case Kind.CHECK_INPUTS:
            return f"{compiled} rejects an input if `{_CHECKS_INPUTS}=1` is set.{eager}"
    return f"{compiled} {_does(facts)}.{eager}"


_DOES = {
    Kind.ASSERT: "fails a run-time assertion",
    Kind.IMA: "makes an illegal memory access",
    Kind.CRASH: "crashes the process",
    Kind.HANG: "does not return",
    Kind.OOM: "requests more memory than is available",
}


def _does(facts: IssueFacts) -> str:
    if facts.kind in _DOES:
        return _DOES[facts.kind]
    name = facts.message.partition(":")[0]
    error = f"`{name}`" if re.fullmatch(r"\w*(Error|Exception)", name) else "an error"
    return f"raises {error} at run time"


def circumstances(facts: IssueFacts, traits: Traits) -> list[str]:
    """Return sentences on the conditions of the failure."""
    sentences = []
    if facts.writes:
        what = traits.writes or "an input or a weight"
        sentences.append(f"The program changes {what} in place.")
    if facts.passes:
        sentences.append(
            "The program passes with the inputs `passing` and fails with `failing`."
        )
    if facts.calls > 1:
        sentences.append(f"Call {facts.calls} of the loaded package fails.")
    if facts.inductor:
        sentences.append(f"The script compiles with the options `{facts.inductor}`.")
    if facts.in_compiler.places and not facts.needs_own:
        anonymous = facts.anonymous
        does = said_of_own(facts.in_compiler, anonymous=anonymous, mark="`")
        sentences.append(f"The script registers custom Inductor code: {does}.")
    # The first sentence already names AOTI_RUNTIME_CHECK_INPUTS.
    stated = [_CHECKS_INPUTS] if facts.kind is Kind.CHECK_INPUTS else []
    if needed := [f"`{name}`" for name in facts.environment if name not in stated]:
        # Without a GPU, the variables that the failure needs there are not known.
        needs = "The script sets {}." if facts.interpreted else _NEEDS
        sentences.append(needs.format(_joined(needed)))
    return sentences


_CHECKS_INPUTS = "AOTI_RUNTIME_CHECK_INPUTS"
_NEEDS = "The failure needs {}, which the script sets."


def format_expected(facts: IssueFacts) -> str:
    """Return the expected behavior."""
    match facts.kind:
        case Kind.CHECK_INPUTS:
            return (
                "The compiled program accepts every input that the exported program "
                "accepts."
            )
        case _ if not facts.compared:
            return "The program compiles, loads and runs, or raises a clear error."
        case Kind.COMPILE_ERROR:
            return "The program compiles."
        case Kind.LOAD_ERROR:
            return "The compiled package loads."
        case Kind.HANG if facts.stage is Stage.COMPILE:
            return "The compilation finishes."
        case Kind.HANG:
            return "The run finishes with the same result as eager."
    return "The compiled program returns the same result as eager."


def format_actual(facts: IssueFacts) -> str:
    """Return the actual behavior."""
    first = strip_paths(_first_line(facts.message))
    often = f", in about {facts.rate:.0%} of the runs" if facts.rate < 1 else ""
    if facts.kind is Kind.HANG:
        what = "compilation" if facts.stage is Stage.COMPILE else "run"
        return f"The {what} does not finish within the time limit{often}."
    how = f" {_PAGES}" if first.startswith(_GUARDS) else ""
    return f"{_quoted(first.removeprefix(_GUARDS))}{often}.{how}"


_GUARDS = "guard pages: "
_PAGES = (
    "Guard pages (inaccessible memory pages next to each tensor, at which an "
    "out-of-bounds access faults) detected this access."
)


def on_versions(tested: Mapping[str, bool]) -> str:
    """Return on which of the tested versions of PyTorch the repro fails.

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
