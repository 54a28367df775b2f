"""What code of a user's own is a part of the compiler, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shrinkfx.failure.readers.own_frames import own_frame
from shrinkfx.failure.signature import Kind, Signature, Stage
from shrinkfx.report.carried import InCompiler

_NAMED = 2
"""Files and places that a sentence names, at most."""

_CODE_OF = "code from"

_NOT_NAMED = "a preload module"
"""What has put it there, where no file did, or where that is left out."""


def told(found: InCompiler, *, anonymous: bool = False, mark: str = "") -> str:
    """Say what does what: ``passes.py sets post_grad_custom_post_pass``.

    Or where it is, if no file has put it there.

    Args:
        anonymous: leave out the names of the user's files.
        mark: what stands on both sides of a name.
    """
    subject = whose(found, anonymous=anonymous, mark=mark)
    if found.only_defined:
        places = " and ".join(_parts(found, mark, _WHERE))
        return f"{_CODE_OF} {subject} is in {places}"
    are_several = len(found.sources) > 1 and not anonymous
    does = " and ".join(_parts(found, mark, _DO if are_several else _DOES))
    does = re.sub(r"\b(registers? .*?) and registers? ", r"\1 and ", does)
    return f"{subject} {does}"


def whose(found: InCompiler, *, anonymous: bool = False, mark: str = "") -> str:
    """Name the files whose code it is."""
    named = () if anonymous else found.sources
    return _joined(list(named), mark) if named else _NOT_NAMED


def sentence(found: InCompiler, *, anonymous: bool = False) -> str:
    """Say what a repro has shown that does not fail without it."""
    does = begun(told(found, anonymous=anonymous))
    return f"{does}; the failure disappears without that code."


def titled(found: InCompiler, operators: str, *, anonymous: bool = False) -> str:
    """Name the code in a title: ``a custom lowering from planted.py``.

    Args:
        operators: named in the title already.
    """
    what = " and ".join(_parts(found, "", _TITLED)).replace(f" of {operators}", "")
    return f"{what} from {whose(found, anonymous=anonymous)}"


def inside(failure: Signature, log: str) -> str:
    """Name the function of the user's own that the compiler hung or died in; or ''.

    Args:
        log: what a repro has printed that failed so.
    """
    is_cut_off = failure.stage is Stage.COMPILE and failure.kind in ENDS
    return own_frame(log) if is_cut_off else ""


ENDS = {Kind.HANG: "hangs", Kind.CRASH: "crashes"}
"""Verbs for failures of the compiler that raise no exception."""


def sentence_inside(
    kind: Kind, function: str, *, anonymous: bool = False, mark: str = ""
) -> str:
    """Say in which function of the user's own the compiler hangs or crashes.

    Args:
        function: as ``inside`` names it.
    """
    where = "code of a preload module" if anonymous else f"{mark}{function}{mark}"
    return f"The compiler {ENDS[kind]} in {where}, which is not part of PyTorch."


def begun(text: str) -> str:
    """Begin a sentence with it; a file's name stays as it is."""
    if text.startswith((_NOT_NAMED, _CODE_OF)):
        return f"{text[:1].upper()}{text[1:]}"
    return text


def _parts(found: InCompiler, mark: str, kinds: Sequence[str]) -> Iterator[str]:
    rest = list(found.places)
    for pattern, words in zip(_PLACES, kinds, strict=True):
        said = {place: re.search(pattern, place) for place in rest}
        rest = [place for place, match in said.items() if match is None]
        if names := [m[1].removesuffix(".default") for m in said.values() if m]:
            yield words.format(_joined(list(dict.fromkeys(names)), mark))


_PLACES = (
    r"^torch\._\w+\.config (\S+)$",
    r"\bdecompositions?\w*: (\S+)$",
    r"\blowerings: (\S+)$",
    r"(.+)$",
)
"""The last one is any other place."""

_DOES = (
    "sets {}",
    "registers a decomposition of {}",
    "registers a lowering of {}",
    "changes {}",
)
_DO = tuple(words.replace("s ", " ", 1) for words in _DOES)
_WHERE = ("{}", "the decomposition of {}", "the lowering of {}", "{}")
_TITLED = (
    "a custom {}",
    "a custom decomposition of {}",
    "a custom lowering of {}",
    "custom code in {}",
)


def _joined(names: list[str], mark: str) -> str:
    shown = [f"{mark}{name}{mark}" for name in names[:_NAMED]]
    if more := len(names) - len(shown):
        return f"{', '.join(shown)} and {more} more"
    return " and ".join(shown)
