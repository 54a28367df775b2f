"""The result of intake: a program in a file, and the settings of its failing run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from shrinkfx.options.options import Options, ScriptFailure
from shrinkfx.program.pytorch_names import COMPILERS, SECRETS, VARIABLES
from shrinkfx.protocol.choices import Backend, InductorOptions
from shrinkfx.protocol.source import is_source_archive

PROGRAM = "program.pt2"
"""Name of the program's file in the folder ``intake``."""

SOURCE_ARCHIVE = "program.zip"
"""Name of the file if torch.export.save rejects the program."""

DOES_NOT_FAIL = "does-not-fail.json"
"""A note next to the program that it did not fail; there is no journal then."""


@dataclass(frozen=True, kw_only=True)
class ResolvedProgram:
    """A failing program and the settings of its failing run.

    Attributes:
        program: the ``.pt2``, or a source archive.
        inputs: the failing inputs, where they differ from those in the ``.pt2``.
        inductor: Inductor options.
        environment: environment variables.
        preload: modules and files that register its custom operators.
        device: the device of the failing run, if it is not the one in the ``.pt2``.
        backend: the backend of the failing run.
        notes: sentences for the user about what was read, and what could not be.
        lacking: those of the sentences about state of the failing run that no other
            process has.
        in_script: the failure in the script, if the program comes from a script.
    """

    program: Path
    inputs: Path | None = None
    inductor: InductorOptions = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    preload: tuple[str, ...] = ()
    device: str | None = None
    backend: Backend = Backend.AUTO
    notes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    in_script: ScriptFailure | None = None

    def to_options(self, options: Options) -> Options:
        """Return the options for a run; the user's options take precedence."""
        new = [name for name in self.preload if name not in options.preload]
        return replace(
            options,
            name=options.name or options.model.name,
            model=self.program,
            inputs=options.inputs or self.inputs,
            inductor={**self.inductor, **options.inductor},
            environment={**self.environment, **options.environment},
            preload=(*new, *options.preload),
            run_code=options.run_code or _is_generated_code(self.program),
            device=options.device or self.device,
            backend=self.backend
            if options.backend == Backend.AUTO
            else options.backend,
            lacking=(*options.lacking, *self.lacking),
            in_script=self.in_script or options.in_script,
        )


def _is_generated_code(program: Path) -> bool:
    """Return whether shrinkfx wrote the program as code, from what the user ran."""
    return program.suffix == ".py" or is_source_archive(program)


# Which settings and variables of a failing run the reduction copies. All kinds of input
# use these lists and no others.

_ONLY_LOG = re.compile(
    r"TORCH_(TRACE|LOGS|COMPILE_DEBUG)(_\w+)?|TORCH_SHOW_CPP_STACKTRACES"
    r"|TORCHDYNAMO_(REPRO|EXTENDED_DEBUG)_\w+|TORCHDYNAMO_VERBOSE"
    r"|\w+_CACHE(_DIR)?|DUMP_AOTI_MINIFIER|AOT_INDUCTOR_REPRO_LEVEL"
)
"""Variables that only change what is logged or cached, or where."""

_OF_PROCESSES = re.compile(
    r"TORCHELASTIC_\w+|TORCH_NCCL_\w+|TORCHINDUCTOR_COMPILE_THREADS"
)
"""Variables that launchers set for their processes, or that a check sets itself."""

_LOGGING = ("trace.", "aot_inductor.dump_aoti_minifier", "aot_inductor.repro_level")
"""Settings that change only what is logged or dumped.

With the minifier's settings, a check would load and run the program while compiling it.
"""

_OF_EACH_RUN = (
    "aot_inductor.metadata",
    "aot_inductor.package",
    "aot_inductor.output_path",
    "aot_inductor.serialized_in_spec",
    "aot_inductor.serialized_out_spec",
    "torch._functorch.config.unlift_effect_tokens",
)
"""Settings that each compilation sets itself."""

_PROGRAMS = re.compile(
    r"(^|[._])(cxx|gdb|compiler|path|cmd|command)(_|$|\.)|_path$|_command$"
)
"""Settings that name programs to run, or the paths of programs."""


def is_variable(name: str, value: str) -> bool:
    """Return whether a variable tunes PyTorch.

    Secrets, variables with paths, and variables that only affect logging or processes
    do not count.
    """
    tunes = name.startswith(VARIABLES) and not any(word in name for word in SECRETS)
    excluded = _ONLY_LOG.fullmatch(name) or _OF_PROCESSES.fullmatch(name)
    return tunes and "/" not in value and not excluded


def is_user_variable(name: str, value: str) -> bool:
    """Return whether a variable of the user's script tunes PyTorch or the compiler."""
    return name.startswith(COMPILERS) or is_variable(name, value)


def is_setting(name: str) -> bool:
    """Return whether a setting affects more than logs, files and caches."""
    is_free = name.startswith(_LOGGING) or name.endswith("_cache")
    return not is_free and name not in _OF_EACH_RUN


def names_programs(name: str) -> bool:
    """Return whether a setting names a program to run; it is not copied from a dump."""
    return _PROGRAMS.search(name) is not None
