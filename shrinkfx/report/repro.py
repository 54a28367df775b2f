"""Assemble ``repro.py`` from a printed program."""

from __future__ import annotations

import ast
import base64
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shrinkfx.failure.readers.script import CANNOT_TELL, RAN_TO_END_PREFIX
from shrinkfx.failure.signature import MEMORY_FAULT, Kind, Stage
from shrinkfx.preloads.preload_bundle import Definitions
from shrinkfx.protocol.choices import Backend
from shrinkfx.protocol.requests import HASH_SEED
from shrinkfx.protocol.source import Expression, Input, Source, Weight
from shrinkfx.report.header import format_header
from shrinkfx.report.record import NoSource, RunRecord
from shrinkfx.report.template import render

SAVED = "repro.pt2"
"""The file that a repro writes if only the user's own command can judge it."""

DATA = "repro_inputs.pt"

EXAMPLE = "exported.example_inputs[0]"
"""The inputs that an embedded program was exported with."""


class Data(StrEnum):
    """The source of the values of weights and inputs, simplest first."""

    SEEDED = "seeded"
    EXACT_INPUTS = "exact inputs"
    EXACT_WEIGHTS = "exact weights"
    EXACT = "exact"


_OF_WEIGHTS = (Data.EXACT_WEIGHTS, Data.EXACT)
_OF_INPUTS = (Data.EXACT_INPUTS, Data.EXACT)


class Values:
    """Chooses the expression of each tensor, and records the helpers that it needs."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self._texts: list[str] = []
        self.needs_data = False

    def choose(self, name: str, written: Expression, exact_in: Sequence[Data]) -> str:
        """Return the exact values with some sources of values, else seeded ones."""
        text = written.exact if self._data in exact_in else written.seeded
        if not text:
            self.needs_data = True
            text = f'data["{name}"]'
        self._texts.append(text)
        return text

    def helpers(self) -> list[str]:
        """Return the helper functions and statements that the expressions use."""
        helpers = []
        if any(text.startswith("script_object(") for text in self._texts):
            helpers.append(SCRIPT_OBJECT)
        if any("unpack(" in text for text in self._texts):
            helpers.append(_UNPACK)
        if self.needs_data:
            helpers.append(f'data = torch.load("{DATA}", weights_only=True)')
        if any("torch.rand" in text for text in self._texts):
            helpers.append("torch.manual_seed(0)")
        return helpers


_UNPACK = '''
def unpack(text, dtype, shape):
    """Exact values, compressed."""
    import base64
    import zlib

    raw = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(shape)
'''


SCRIPT_OBJECT = '''
def script_object(state, name):
    """An object of a class in C++, as it was saved."""
    made = torch.ScriptObject.__new__(torch.ScriptObject)
    made.__setstate__((state, name))
    return made
'''


@dataclass(frozen=True)
class Script:
    """The text of a repro, and whether it loads values from a file next to it."""

    text: str
    needs_data: bool


def write_repro(
    printed: Source,
    record: RunRecord,
    definitions: Sequence[Definitions],
    data: Data,
    *,
    unpacking: str = "",
    remarks: Sequence[str] = (),
) -> Script:
    """Write the script from the source that the worker printed.

    Args:
        printed: the program, as ``worker/printing/module.py`` printed it.
        definitions: the registrations of the program's operators, in order.
        data: the source of the values of weights and inputs.
        unpacking: statements that make the needed modules importable.
        remarks: further lines for the header.
    """
    values = Values(data)
    module = _module(printed, values, jit=is_jit(record))
    inputs = _inputs(printed, values, record)
    parts = [
        format_header(record, *remarks),
        _imports(record, definitions, *_modules(printed)),
        unpacking,
        *_registrations(definitions),
        *_without_cache(record, definitions),
        *values.helpers(),
        module,
        inputs,
        _run(printed, record),
    ]
    return Script(_join(parts), values.needs_data)


def write_embedded(
    program: bytes | str,
    record: RunRecord,
    definitions: Sequence[Definitions],
    runs: Mapping[str, str],
    why: NoSource,
    source: Source | None = None,
    *,
    unpacking: str = "",
    remarks: Sequence[str] = (),
) -> str:
    """Write a script that embeds the program instead of its source.

    Args:
        program: the bytes of the ``.pt2``, or the name of the file next to the script.
        runs: expressions for the inputs: ``failing`` and optionally ``passing``.
        why: why the source is not used.
        source: the source of the program, whose graph a comment shows.
    """
    if isinstance(program, bytes):
        text = base64.b85encode(program).decode()
        rows = "\n".join(text[i : i + 4096] for i in range(0, len(text), 4096))
        file = 'io.BytesIO(base64.b85decode(PROGRAM.replace("\\n", "")))'
        load = [
            f'PROGRAM = """\n{rows}\n"""',
            f"exported = torch.export.load({file})",
        ]
    else:
        load = [f'exported = torch.export.load("{program}")']
    load = [
        *_describe_embedded(why, source),
        *load,
        "model = exported.module(check_guards=False)",
        "model._forward_pre_hooks.clear()  # skip the module's own input checks",
        *(f"{run} = {inputs}" for run, inputs in runs.items()),
    ]
    compiled_for = ""
    if is_jit(record) and record.programs.after.dynamic_dims:
        names = [*runs]
        if runs["failing"] != EXAMPLE:
            compiled_for = "args"
            names.append(compiled_for)
            load.append(f"{compiled_for} = {EXAMPLE}")
        load.append(_MARK_AS_EXPORTED.strip().format(runs=", ".join(names)))
    registering = _registering_modules(" ".join(record.programs.targets))
    parts = [
        format_header(record, *remarks),
        _imports(record, definitions, "base64", "io", *registering),
        unpacking,
        *_registrations(definitions),
        *_without_cache(record, definitions),
        "\n".join(load),
        format_run(
            record, "program = exported", "failing", compiled_for, "model.forward"
        ),
    ]
    return _join(parts)


def _describe_embedded(why: NoSource, source: Source | None) -> list[str]:
    """Return a comment with the reason, and with the graph if it is short."""
    lines = [f"{why}, so this script loads the exported program."]
    if source is not None and len(source.body) <= _SHOWN_STATEMENTS:
        head = f"def forward({', '.join(['self', *(i.name for i in source.inputs)])}):"
        body = textwrap.indent("\n".join(source.body), "    ")
        forward = ast.unparse(ast.parse(f"{head}\n{body}"))  # without comments
        lines += ["Its graph is:", "", *forward.splitlines()]
    return [f"# {line}".rstrip() for line in lines]


_SHOWN_STATEMENTS = 30
"""Maximum statements of an embedded program that a comment shows."""


def write_registrations(
    record: RunRecord, definitions: Sequence[Definitions], unpacking: str
) -> str:
    """Write only the part of a repro that registers operators."""
    return _join(
        [_imports(record, definitions), unpacking, *_registrations(definitions)]
    )


def _join(parts: Sequence[str]) -> str:
    """Join parts with a blank line, or with two around definitions."""
    text = ""
    previous = ""
    for part in (p.strip("\n") for p in parts if p.strip("\n")):
        defines = any(p.startswith(("class ", "def ", "@")) for p in (part, previous))
        between = "\n\n\n" if defines else "\n\n"
        last_line = previous.rpartition("\n")[2]
        if _IMPORT.match(last_line) and _IMPORT.match(part):
            between = "\n"
        text += part if not text else between + part
        previous = part
    return text + "\n"


_IMPORT = re.compile(r"import |from ")


def _imports(
    record: RunRecord, definitions: Sequence[Definitions], *modules: str
) -> str:
    future = sorted({f for d in definitions for f in d.future})
    lines = [f"from __future__ import {', '.join(future)}", ""] if future else []
    conditions = record.conditions
    variables = dict(conditions.environment)
    at_start = {HASH_SEED: variables.pop(HASH_SEED)} if HASH_SEED in variables else {}
    if record.memory.heap_checked:
        preload = variables.pop("LD_PRELOAD", "")
        at_start["LD_PRELOAD"] = f"{_CHECKER} {preload}".strip()
        at_start |= HEAP_CHECKS
    if variables or at_start:
        lines += ["import os", *_restarted_with(at_start), "", *_set(variables)]
        lines += [""] if variables else []
    modules = (*modules, *(["copy"] if conditions.keeps_state else []))
    if record.needs_asan and "import os" not in lines:
        modules = (*modules, "os")
    lines += [f"import {module}" for module in sorted([*modules, "torch"])]
    return "\n".join(lines)


_CHECKER = "libc_malloc_debug.so.0"
HEAP_CHECKS = {"MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
"""Makes glibc's allocator (2.34 or later) check and fill each block that is freed."""


def _restarted_with(variables: Mapping[str, str]) -> list[str]:
    """Return lines that restart a script with variables that are read at startup.

    The last variable shows whether the restart has happened, because nothing unsets it.
    """
    if not variables:
        return []
    last, value = [*variables.items()][-1]
    return [
        "import sys",
        "",
        f'if os.environ.get("{last}") != {value!r}:  # read when Python starts',
        *(f"    {line}" for line in _set(variables)),
        "    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])",
    ]


def _set(variables: Mapping[str, str]) -> list[str]:
    return [f'os.environ["{name}"] = {value!r}' for name, value in variables.items()]


def _modules(printed: Source) -> list[str]:
    """List the modules that the printed statements use, without ``torch``."""
    text = "\n".join([*printed.body, *printed.branches])
    modules = [m for m in ("math", "operator") if re.search(rf"\b{m}\.", text)]
    return [*modules, *_registering_modules(text)]


def _registering_modules(text: str) -> list[str]:
    """List the modules that register operators of PyTorch which a text calls."""
    return [_INDUCTOR] if _REGISTERED.search(text) else []


_INDUCTOR = "torch._inductor.compile_fx  # registers operators"
_REGISTERED = re.compile(
    r"\b(?:quantized_decomposed|flex_lib|prims\.(?:fma|prepare|inductor|_))"
)
"""Operators that are not registered when torch is imported, but with Inductor."""


def _registrations(definitions: Sequence[Definitions]) -> list[str]:
    parts = [_as_part(d.text).strip("\n") for d in definitions]
    return [f"{_CUSTOM}\n{p}" if "\n" in p else p for p in parts]


def _without_cache(record: RunRecord, definitions: Sequence[Definitions]) -> list[str]:
    """Disable the cache of compiled graphs, which does not notice changes of the code.

    Other caches remain: Inductor compiles a dozen test programs without them.
    """
    return [_NO_CACHE] if is_jit(record) and any(_registrations(definitions)) else []


_NO_CACHE = "torch._inductor.config.fx_graph_cache = False  # compile in each run"
_CUSTOM = "# Custom code that the failure needs:"


def _as_part(text: str) -> str:
    """Remove ``import torch`` and the docstring at the top of an embedded file."""
    text = re.sub(r"^import torch\n", "", text, count=1, flags=re.MULTILINE)
    first = next(iter(ast.parse(text).body), None)
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        return "\n".join(text.splitlines()[first.end_lineno :])
    return text


def _module(printed: Source, values: Values, *, jit: bool) -> str:
    setup = [_weight_line(w, values) for w in printed.weights]
    called = re.findall(rf"{re.escape(_SCAN)}self\.(\w+)", "\n".join(printed.body))
    for name, kind in printed.members.items():
        is_graph = jit and name in called
        made = f"torch.fx.symbolic_trace({kind}())" if is_graph else f"{kind}()"
        setup.append(f"self.{name} = {made}")
    lines = ["class Repro(torch.nn.Module):"]
    if setup:
        lines += ["    def __init__(self):", "        super().__init__()"]
        lines += [f"        {line}" for line in setup] + [""]
    names = ", ".join(["self", *(i.name for i in printed.inputs)])
    lines.append(f"    def forward({names}):")
    body = map(_with_closures, printed.body) if jit else printed.body
    lines += [f"        {line}" for line in body]
    return "\n\n\n".join([*printed.branches, "\n".join(lines)])


_SCAN = "torch.ops.higher_order.scan("
_FLEX_ATTENTION = "torch.ops.higher_order.flex_attention("


def _with_closures(line: str) -> str:
    """Pass the values that flex_attention's functions read in closures, for Dynamo."""
    code, *comment = line.partition("  # ")
    if _FLEX_ATTENTION not in code:
        return line
    statement = ast.parse(code)
    for call in ast.walk(statement):
        match call:
            case ast.Call(args=[*_, score, ast.Tuple(elts=mask), _, _, bound, masked]):
                call.args[3], mask[-1] = _bind(score, bound), _bind(mask[-1], masked)
                del call.args[-2:]
    return "".join([ast.unparse(statement), *comment])


def _bind(function: ast.expr, values: ast.expr) -> ast.expr:
    assert isinstance(values, ast.Tuple)
    if not values.elts:
        return function
    captured = ", ".join(map(ast.unparse, values.elts))
    closure = f"lambda *args: {ast.unparse(function)}(*args, {captured})"
    return ast.parse(closure, mode="eval").body


def _weight_line(weight: Weight, values: Values) -> str:
    name, kind = weight.attribute, weight.kind
    text = values.choose(f"weight_{name}", weight.text, _OF_WEIGHTS)
    match kind:
        case "trainable_parameter":
            return f"self.{name} = torch.nn.Parameter({text})"
        case "parameter":
            return f"self.{name} = torch.nn.Parameter({text}, requires_grad=False)"
        case "buffer":
            return f'self.register_buffer("{name}", {text})'
        case "non_persistent_buffer":
            return f'self.register_buffer("{name}", {text}, persistent=False)'
        case "saved_object":
            return f"self.{name} = torch._C._pickle_load_obj(bytes({text}.tolist()))"
    return f"self.{name} = {text}"


def _inputs(printed: Source, values: Values, record: RunRecord) -> str:
    inputs, example = printed.inputs, _example(printed, record)
    only_exports = example == "args" and any(_has(printed, run) for run in _RUNS)
    exact_in = () if only_exports else _OF_INPUTS  # export reads no values
    texts = [values.choose(f"example_{i.name}", i.example, exact_in) for i in inputs]
    lines = [_tuple(example, texts)]
    for run in _RUNS:
        if not _has(printed, run):
            continue
        texts = [
            values.choose(f"{run}_{item.name}", expression, _OF_INPUTS)
            if (expression := _of_run(item, run))
            else f"{example}[{place}]"
            for place, item in enumerate(inputs)
        ]
        lines.append(_tuple(run, texts))
    if is_jit(record):
        runs = _RUNS if record.conditions.passes else (_called_with(printed, record),)
        names = {_compiled_for(printed, record): None, **dict.fromkeys(runs)}
        marks = _mark_dynamic(printed.dynamic_shapes, [*filter(None, names)])
        return "\n".join([*lines, *marks])
    return "\n".join([*lines, *printed.dims])


_RUNS = ("passing", "failing")


def _has(printed: Source, run: str) -> bool:
    """Return whether a run has its own inputs, different from the example."""
    return any(_of_run(i, run) for i in printed.inputs)


def _of_run(item: Input, run: str) -> Expression | None:
    """Return the expression of an input in a run; None if the example is used."""
    return {"passing": item.passing, "failing": item.failing}[run]


def _example(printed: Source, record: RunRecord) -> str:
    """Return the variable of the export's inputs: that of a run with the same ones."""
    same = (run for run in _RUNS if record.conditions.passes and not _has(printed, run))
    return next(same, "args")


def _tuple(name: str, items: Sequence[str]) -> str:
    if sum(map(len, items)) < 60:
        return f"{name} = ({', '.join(items)}{',' if len(items) == 1 else ''})"
    rows = "".join(f"    {item},\n" for item in items)
    return f"{name} = (\n{rows})"


def _run(printed: Source, record: RunRecord) -> str:
    shapes = printed.dynamic_shapes
    dynamic = "" if shapes == "None" else f", dynamic_shapes={shapes}"
    example = _example(printed, record)
    export = f"program = torch.export.export(model, {example}{dynamic})"
    called_with, first = _called_with(printed, record), _compiled_for(printed, record)
    return "model = Repro().eval()\n" + format_run(record, export, called_with, first)


def _compiled_for(printed: Source, record: RunRecord) -> str:
    """Return the variable of the inputs to compile dynamic dims for.

    Returns:
        '' if the first call has these inputs, or no dim is dynamic.
    """
    example = _example(printed, record)
    is_passing = record.conditions.passes
    first_call = "passing" if is_passing else _called_with(printed, record)
    return "" if printed.dynamic_shapes == "None" or example == first_call else example


def _called_with(printed: Source, record: RunRecord) -> str:
    """Return the variable of the inputs of the run that fails."""
    return "failing" if _has(printed, "failing") else _example(printed, record)


def is_jit(record: RunRecord) -> bool:
    """Return whether a repro compiles its model with ``torch.compile``."""
    is_check = record.signature.kind is Kind.CHECK
    return record.conditions.backend is Backend.INDUCTOR and not is_check


def _mark_dynamic(shapes: str, names: Sequence[str]) -> list[str]:
    """Return lines that mark the dynamic dims of each tuple of inputs.

    >>> _mark_dynamic("({0: dim, 2: 2*dim}, None)", ["args"])
    ['torch._dynamo.maybe_mark_dynamic(args[0], [0, 2])']
    """
    declared = ast.parse(shapes, mode="eval").body
    inputs = declared.elts if isinstance(declared, ast.Tuple) else []
    return [
        f"torch._dynamo.maybe_mark_dynamic({name}[{place}], [{dims}])"
        for name in names
        for place, each in enumerate(inputs)
        if isinstance(each, ast.Dict)
        and (dims := ", ".join(ast.unparse(key) for key in each.keys if key))
    ]


_MARK_AS_EXPORTED = """
for values in ({runs},):  # the dims that the program declares dynamic
    nodes = exported.graph.find_nodes(op="placeholder")[-len(values) :]
    for value, node in zip(values, nodes, strict=True):
        for dim, size in enumerate(getattr(node.meta["val"], "shape", ())):
            if not isinstance(size, int):
                torch._dynamo.maybe_mark_dynamic(value, dim)
"""


def format_run(
    record: RunRecord,
    export: str,
    called_with: str,
    compiled_for: str = "",
    called: str = "model",
) -> str:
    """Return the statements after the model: export, compile, run, compare.

    Args:
        export: the statement that assigns ``program``.
        called_with: the name of the tuple of inputs; the tuple ``passing`` exists in
            addition if the repro has a run that must pass.
        compiled_for: the name of the tuple of inputs that ``torch.compile`` compiles
            for, or '' for those of the first call.
        called: the function that ``torch.compile`` compiles.
    """
    conditions, signature = record.conditions, record.signature
    name = "inputs" if conditions.passes else called_with
    keeps_state, options = conditions.keeps_state, dict(conditions.inductor)
    name_of_options = ", options" if is_jit(record) else ", inductor_configs"
    at_memory = signature.detail == MEMORY_FAULT and signature.stage is Stage.RUN
    values = {
        **vars(conditions),
        "kind": signature.kind,
        "stage": signature.stage,
        "export": export,
        "inputs": f"copy.deepcopy({name})" if keeps_state else name,
        "options": f"{name_of_options}={options!r}" if options else "",
        "device": f", device_index={conditions.gpu}" if conditions.gpu > 0 else "",
        "eager_is_late": keeps_state
        or bool(conditions.interpreted_for)
        or conditions.passes,
        "copies_model": keeps_state and conditions.reference,
        "calls": record.failure.calls,
        "repeats": record.memory.loop,
        "is_memory_fault": at_memory,
        # On a GPU, Inductor times kernels with random values.
        "times_kernels": signature.stage is Stage.COMPILE and "GPU" in record.versions,
        "is_jit": is_jit(record),
        "called": called,
        "compiled_for": compiled_for,
        "guarded": record.guarded,
        "needs_asan": record.needs_asan,
        "need_not_show": record.need_not_show,
        "by_chance": record.by_chance,
        "ran_to_end": RAN_TO_END_PREFIX,
        "cannot_tell": CANNOT_TELL,
        "saved": SAVED,
    }
    return render("run.py.jinja", values).strip()
