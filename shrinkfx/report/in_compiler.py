"""Sentences about custom code that is registered in PyTorch's compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shrinkfx.failure.readers.threads import find_user_frame
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.preloads.preload_bundle import CustomCompilerCode

_NAMED = 2
"""Maximum number of files or places that a sentence names."""

_NOT_NAMED = "a preload module"
"""The subject where no file registers the code, or where its name is omitted."""


def describe_custom_code(
    found: CustomCompilerCode, *, anonymous: bool = False, mark: str = ""
) -> str:
    """Return who does what: ``passes.py sets post_grad_custom_post_pass``.

    If no file of the user's registers the code, the clause names the file with it.

    Args:
        anonymous: omit the names of the user's files.
        mark: text to put on both sides of a name.
    """
    sources = name_sources(found, anonymous=anonymous, mark=mark)
    are_several = len(found.sources) > 1 and not anonymous
    if found.only_defined:
        places = " and ".join(_parts(found, mark, _WHERE))
        return f"{sources} {'define' if are_several else 'defines'} {places}"
    does = " and ".join(_parts(found, mark, _DO if are_several else _DOES))
    does = re.sub(r"\b(registers? .*?) and registers? ", r"\1 and ", does)
    return f"{sources} {does}"


def name_sources(
    found: CustomCompilerCode, *, anonymous: bool = False, mark: str = ""
) -> str:
    """Return the names of the files that contain the code."""
    names = () if anonymous else found.sources
    return _joined(list(names), mark) if names else _NOT_NAMED


def format_disappears_without(
    found: CustomCompilerCode, *, anonymous: bool = False
) -> str:
    """State that the failure disappears without the custom code."""
    does = capitalize_sentence(describe_custom_code(found, anonymous=anonymous))
    return f"{does}; the failure disappears without that code."


def format_title_part(
    found: CustomCompilerCode, operators: str, *, anonymous: bool = False
) -> str:
    """Return the code as a title names it: ``custom lowering from planted.py``.

    Args:
        operators: operators that the title already names.
    """
    parts = list(dict.fromkeys(_parts(found, "", _TITLED)))
    parts = [part for part in parts if part != _ANY_CODE] or parts
    what = " and ".join(parts).replace(f" of {operators}", "")
    return f"{what} from {name_sources(found, anonymous=anonymous)}"


def find_own_function(failure: Signature, log: str) -> str:
    """Return the user's function that the compiler hung or crashed in, or ''.

    Args:
        log: the output of a repro that failed in this way.
    """
    is_cut_off = failure.stage is Stage.COMPILE and failure.kind in ENDS
    return find_user_frame(log) if is_cut_off else ""


ENDS = {Kind.HANG: "hangs", Kind.CRASH: "crashes"}
"""Verbs for failures of the compiler that raise no exception."""


def format_stops_in_function(
    kind: Kind, function: str, *, anonymous: bool = False, mark: str = ""
) -> str:
    """State in which function of the user's the compiler hangs or crashes.

    Args:
        function: the function, as ``inside`` returns it.
    """
    where = "code of a preload module" if anonymous else f"{mark}{function}{mark}"
    return f"The compiler {ENDS[kind]} in {where}, which is not part of PyTorch."


def capitalize_sentence(text: str) -> str:
    """Capitalize the text as a sentence; a leading file name stays as it is."""
    if text.startswith(_NOT_NAMED):
        return f"{text[:1].upper()}{text[1:]}"
    return text


def _parts(found: CustomCompilerCode, mark: str, kinds: Sequence[str]) -> Iterator[str]:
    rest = list(found.places)
    for pattern, words in zip(_PLACES, kinds, strict=True):
        matches = {place: re.search(pattern, place) for place in rest}
        rest = [place for place, match in matches.items() if match is None]
        if names := [_name_place(match[1]) for match in matches.values() if match]:
            yield words.format(_joined(list(dict.fromkeys(names)), mark))


def _name_place(place: str) -> str:
    """Return ``pkg.cpp.Overrides.tanh`` for the place ``pkg.cpp Overrides: tanh``."""
    if dotted := re.fullmatch(r"([\w.]+) (\w+)(?:: (\w+))?", place):
        return ".".join(filter(None, dotted.groups()))
    return place.removesuffix(".default")


_PLACES = (
    r"^torch\._\w+\.config (\S+)$",
    r"\bdecompositions?\w*: (\S+) \(removed\)$",
    r": (\S+) \(removed\)$",
    r"\bdecompositions?\w*: (\S+)$",
    r"\blowerings: (\S+)$",
    r"(.+)$",
)
"""Patterns of places; the last one matches any other place."""

_DOES = (
    "sets {}",
    "removes PyTorch's decomposition of {}",
    "removes PyTorch's code for {}",
    "registers a decomposition of {}",
    "registers a lowering of {}",
    "changes {}",
)
_DO = tuple(words.replace("s ", " ", 1) for words in _DOES)
_WHERE = (
    "the value of {}",
    "the decomposition of {}",
    "the code for {}",
    "the decomposition of {}",
    "the lowering of {}",
    "the code of {}",
)
_ANY_CODE = "custom Inductor code"
_TITLED = (
    "{}",
    *(_ANY_CODE, _ANY_CODE),
    "custom decomposition of {}",
    "custom lowering of {}",
    _ANY_CODE,
)


def _joined(names: list[str], mark: str) -> str:
    shown = [f"{mark}{name}{mark}" for name in names[:_NAMED]]
    if more := len(names) - len(shown):
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(shown)
