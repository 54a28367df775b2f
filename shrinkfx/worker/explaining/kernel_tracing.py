"""Instrument C++ kernels to report their arguments and the indices they reject.

Each function is changed before it is compiled, within its lines, so that lines keep
their numbers. It reports to a file, because the process may die at the next line. ::

    launch cpp_fused_embedding_0 in_ptr0=0x7f.. ks0=12
    refused cpp_fused_embedding_0 17 tmp4=15 12=12 tmp0=3
    fault 0x7f... cpp_fused_embedding_0 17
    done cpp_fused_embedding_0
    threw cpp_fused_embedding_0
    cut

``cut`` stands for the remaining launches of a program that has very many.
"""

from __future__ import annotations

import re

from shrinkfx.failure.readers.generated import Code, IndexCheck

TRACE_FILE_VARIABLE = "SHRINKFX_TELLING"
"""The environment variable that names the file."""

_HELPERS = (
    "#include <csignal>",
    "#include <cstdio>",
    "#include <cstdlib>",
    "#include <exception>",
    "#include <fcntl.h>",
    "#include <string>",
    "#include <type_traits>",
    "#include <unistd.h>",
    r"""
namespace shrinkfx { namespace {
inline int& file() { static int number = -1; return number; }
thread_local const char* volatile kernel_at = "?";
thread_local volatile int line_at = -1;
inline void at(const char* kernel, int line) {
  kernel_at = kernel; line_at = line; asm volatile("" ::: "memory");
}
inline struct sigaction* before() { static struct sigaction all[2]; return all; }
inline void on_fault(int number, siginfo_t* what, void*) {
  const char* kernel = kernel_at; const int line = line_at;
  dprintf(file(), "fault %p %s %d\n", what->si_addr, kernel, line);
  sigaction(number, &before()[number == SIGBUS], nullptr);
}
inline bool begin() {
  const char* path = std::getenv("SHRINKFX_TELLING");
  if (path) file() = ::open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (file() < 0) return false;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before()[0]);
  sigaction(SIGBUS, &action, &before()[1]);
  return true;
}
inline bool tells() { static const bool does = begin(); return does; }
inline std::string text(const void* value) {
  char digits[32]; std::snprintf(digits, sizeof digits, "%p", value); return digits;
}
template <typename T, typename = void> struct Lanes {
  static constexpr int count = 1;
  static std::string at(const T& value, int) {
    if constexpr (std::is_arithmetic_v<T>) return std::to_string(value);
    else return "?";
  }
};
template <typename T>
struct Lanes<T, std::void_t<typename T::value_type, decltype(T::size()),
    decltype(std::declval<const T&>().store(static_cast<void*>(nullptr)))>> {
  static constexpr int count = T::size();
  static std::string at(const T& value, int lane) {
    typename T::value_type all[T::size()]; value.store(all);
    return Lanes<typename T::value_type>::at(all[lane], 0);
  }
};
template <typename C> bool holds(const C& all, int lane) {
  if constexpr (std::is_convertible_v<C, bool>) return static_cast<bool>(all);
  else return all.is_masked(lane);
}
template <typename V> std::string of_lane(const V& value, int lane, int lanes) {
  const bool fits = Lanes<V>::count == 1 || Lanes<V>::count == lanes;
  return fits ? Lanes<V>::at(value, lane) : "?";
}
inline bool room() {
  static long left = 20000;
  if (left == 0) dprintf(file(), "cut\n");
  return left-- > 0;
}
struct Launch {
  const char* kernel;
  bool told;
  template <typename... V> Launch(const char* name, const char* const* names,
      const V&... values) : kernel(name), told(tells() && room()) {
    if (!told) return;
    std::string line = std::string("launch ") + kernel; int i = 0;
    ((line += std::string(" ") + names[i++] + "=" + values), ...);
    line += "\n"; dprintf(file(), "%s", line.c_str());
  }
  ~Launch() {
    const char* how = std::uncaught_exceptions() ? "threw" : "done";
    if (told) dprintf(file(), "%s %s\n", how, kernel);
  }
};
template <typename C, typename F, typename... V> void check(const char* where,
    const C& all, const char* const* names, const F& first, const V&... values) {
  constexpr int lanes = std::is_convertible_v<C, bool> ? 1 : Lanes<F>::count;
  for (int lane = 0; lane < lanes; ++lane) {
    if (holds(all, lane)) continue;
    if (!tells()) return;
    std::string line = std::string("refused ") + where; int i = 0;
    line += std::string(" ") + names[i++] + "=" + Lanes<F>::at(first, lane);
    ((line += std::string(" ") + names[i++] + "=" + of_lane(values, lane, lanes)), ...);
    line += "\n"; dprintf(file(), "%s", line.c_str()); return;
  }
}
} }
""".replace("\n", " "),
)
ADDED_LINE_MARK = "// shrinkfx"
"""The end of each line that is added before a kernel."""

_FUNCTION = re.compile(
    r'extern "C"\s+(?:\w+ +)*?void\s+(?P<kernel>\w+)\s*\((?P<given>[^)]*)\)\s*\{'
)
_STATEMENT = re.compile(
    r"^\s*(?:auto tmp\d+ = (?!\[)|tmp\w*[.\[ ]|(?:in_)?out_ptr\d+\[|atomic_add).*;$"
)
_NAME = re.compile(r"^_?tmp\w+$")


def instrument_kernel(text: str, *, lines_too: bool = False) -> str:
    """Instrument a kernel; one of another form, such as a template's, is not changed.

    Args:
        lines_too: also let each line record that it begins, so that a fault can report
            its line. This keeps the C++ compiler from joining lines.
    """
    found = _FUNCTION.search(text)
    if found is None:
        return text
    code, lines = Code(text), text.split("\n")
    for check in code.checks():
        report = _write_check_report(code, check, f"{found['kernel']} {check.line}")
        before, macro, after = lines[check.line].partition("AOTI_TORCH_CHECK(")
        lines[check.line] = f"{before}{report}{macro}{after}" if macro else before
    if lines_too:
        first = text[: found.end()].count("\n") + 1
        rest = enumerate(lines[first:], first)
        lines[first:] = [_note_line(found["kernel"], n, line) for n, line in rest]
    # The text above the body has not changed.
    above, head = text[: found.start()], text[found.start() : found.end()]
    body = "\n".join(lines)[found.end() :]
    return f"{above}{_write_helpers()}{head}{_write_launch_report(found)}{body}"


def _write_launch_report(found: re.Match[str]) -> str:
    """Write the statements that report the arguments of a launch."""
    parameters = _list_parameters(found["given"])
    if not parameters:
        return ""
    names = ", ".join(f'"{name}"' for name, _ in parameters)
    values = "".join(f", {value}" for _, value in parameters)
    launch = f'shrinkfx_launch("{found["kernel"]}", shrinkfx_names{values})'
    return (
        f"static const char* const shrinkfx_names[] = {{{names}}}; "
        f"const shrinkfx::Launch {launch};"
    )


def _note_line(kernel: str, number: int, line: str) -> str:
    """Let a line that is a complete statement record that it begins."""
    begin = len(line) - len(line.lstrip())
    if not _STATEMENT.match(line):
        return line
    return f'{line[:begin]}shrinkfx::at("{kernel}", {number}); {line[begin:]}'


def _write_helpers() -> str:
    """Write the helpers that all kernels of a file share, with an include guard."""
    lines = ["#ifndef SHRINKFX_TELLS", "#define SHRINKFX_TELLS", *_HELPERS, "#endif"]
    return "".join(f"{line} {ADDED_LINE_MARK}\n" for line in lines)


def _write_check_report(code: Code, check: IndexCheck, where: str) -> str:
    """Write the call that reports a check: its index, its limit and their history."""
    steps = code.history(check.index, check.line)
    names = [check.index, check.upper or check.lower]
    names += [step.name for step in steps if _is_visible(code, step.name, check.line)]
    names = list(dict.fromkeys(name for name in names if name))
    holds = check.holds.removesuffix(".all_masked()")
    listed = ", ".join(f'"{name.replace(" ", "")}"' for name in names)
    return (
        f"{{ static const char* const names[] = {{{listed}}}; "
        f'shrinkfx::check("{where}", {holds}, names, {", ".join(names)}); }} '
    )


def _is_visible(code: Code, name: str, line: int) -> bool:
    """Return whether a name is that of a value in scope, and not that of a lambda."""
    value = code.definition(name, line)
    return bool(value and _NAME.match(name) and not value.expression.startswith("[&]"))


def _list_parameters(parameters: str) -> list[tuple[str, str]]:
    """List a function's parameters, with the expressions that print their values."""
    pairs = []
    for entry in parameters.split(","):
        if words := re.findall(r"\w+", entry):
            name = words[-1]
            pointer = f"shrinkfx::text(static_cast<const void*>({name}))"
            number = f"std::to_string({name})"
            pairs.append((name, pointer if "*" in entry else number))
    return pairs
