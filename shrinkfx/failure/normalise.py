"""Remove from a message the parts that change while a program shrinks.

Normalized messages are compared exactly, so they must not contain anything that depends
on the machine, on sizes, on positions, on the number of neighboring nodes, or on
vectorization.
"""

from __future__ import annotations

import re

_FILE = re.compile(
    r"(?:(?<![\w.)\]])~?/[\w.+@-]+|\b[\w+@-]+(?=/[\w.+@/-]*\.\w))(?:/[\w.+@-]*)*(?::\d+)*"
    r"|\b[\w-]+\.(?:py|c|cc|cpp|cu|h|hpp|o|so|s|S|pt2?)\b(?:[:(]\d+\)?)*"
)
_QUOTED_FILE = re.compile(r"(?<!\w)(['\"])[^'\"\n]*/[^'\"\n]*\1")
_KERNEL = re.compile(r"\b(?:cpp|triton)_\w+")
_DTYPE = re.compile(
    r"\btorch\.(?:b?float|u?int|complex|bool|half|double|long|short)\w*"
    r"|\b(?:at::)?k?(?:Float|Double|Half|BFloat16|Long|Int|Short|Char|Byte|Bool"
    r"|ComplexFloat|ComplexDouble)\b"
)
_POSITION = re.compile(r"(?<=\w)[._]\d+(?=[._]|\b)")
# Names that compilers make up; log2 and exp2, mylib::op1 and mylib::op2 are not.
_NUMBERED = re.compile(
    r"(?<![\w.])(?<!::)([A-Za-z]|\w*_|tmp|buf|arg|op|ks|zuf|(?:in|out|in_out)_ptr)\d+\b"
)
_NUMBER = re.compile(r"(?<![\w#])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?\w*")
_SIZES = re.compile(r"([\[(])(?:(?:s|u|ks|zuf)?#[-+*/%, ]*)+([\])])|(\[)(\])")
# g++ quotes with U+2018 and U+2019, and the linker with ` and '.
_QUOTED = re.compile("[\u2018`]([^\u2018\u2019`']*)[\u2019']")
_SUGGESTION = re.compile("; did you mean [^\n]*| \\{aka [^}]*\\}| \\[-\\S+\\]$")
# The pytree of a program's inputs or outputs; (*) is a single value. A smaller program
# returns less, and a long message is cut off inside it.
_STRUCTURE = re.compile(r" ?\(?\bTreeSpec\(.*| \(\*\)\.?", re.DOTALL)
_MANGLED = re.compile(r"\b_Z\w+")
_TYPE = re.compile(
    r"(?:float|double|int|long|short|char|bool|unsigned|signed|void|auto|half"
    r"|u?int\d+_t|size_t|Half|BFloat16)"
)


def normalise(text: str) -> str:
    """Normalize a message of PyTorch.

    >>> normalise("buf12 of [2, s7] in /tmp/x.cpp:3 is torch.half, not at -1e-5")
    'buf# of [#] in is dtype, not at #'
    """
    text = _FILE.sub("", _QUOTED_FILE.sub("", _STRUCTURE.sub("", text)))
    text = _KERNEL.sub("kernel", text)
    text = _DTYPE.sub("dtype", text)
    text = re.sub(r"\b0x[0-9a-f]+\b", "#", text)
    text = _POSITION.sub("", text)
    text = _NUMBERED.sub(r"\1#", text)
    text = _NUMBER.sub("#", text)
    text = _SIZES.sub(r"\1\3#\2\4", text)
    return re.sub(r"\s+", " ", text).strip()


def normalise_cpp(text: str) -> str:
    """Normalize a message of the C++ compiler, the linker or the loader.

    Names of functions and variables are kept. Types are not, because the same line of a
    kernel is compiled for a vector in a large program and for a scalar in a small one.
    """
    text = _SUGGESTION.sub("", text)
    text = _MANGLED.sub(lambda found: demangled_name(found[0]), text)
    return normalise(_QUOTED.sub(lambda found: f"'{_name(found[1])}'", text))


def demangled_name(mangled: str) -> str:
    """Return the name in a mangled symbol, without the parameter types.

    >>> plain_name("_ZN2at5emptyEl"), plain_name("_Z3logf")
    ('at::empty', 'log')
    """
    parts, rest = [], re.sub(r"^_Z[NLK]*", "", mangled)
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        parts.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(parts) or mangled


def _name(quoted: str) -> str:
    """Keep a name, of a function without its parameters; replace a type."""
    head = re.sub(r"<.*", "", quoted.partition("(")[0])
    name = head.split()[-1].rpartition("::")[2] if head.split() else ""
    if "operator" in quoted:
        found = re.search(r"operator\s*[^\s\w(]+", quoted)
        return found[0] if found else "_"
    is_call = "(" in quoted
    if is_call or (re.fullmatch(r"\w+", quoted) and not _TYPE.fullmatch(quoted)):
        return name
    return "_"
