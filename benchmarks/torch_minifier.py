"""Run PyTorch's own AOTI minifier: ``python torch_minifier.py JOB.json``.

The job names model, inputs, preloads, a folder, and flags for PyTorch's launcher. That
launcher is written by PyTorch, as for ``DUMP_AOTI_MINIFIER=1``, and is run as it is, so
that nothing is passed but what its authors pass. It is helped where it can be: the
custom operators are registered, and the program has the failing inputs.
``queries`` in the folder grows by a line with each compilation, which says how that
ended; ``answer.json`` holds what is left.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch._inductor
from torch._dynamo.debug_utils import get_minifier_repro_path
from torch._inductor import config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shrinkfx.worker.graph.describe import count_operators, dynamic_dims

_COMPILE = "_aoti_compile_and_package_inner"
"""What the minifier judges a program by."""


def main(job: dict[str, Any]) -> None:
    folder = Path(job["folder"])
    for preload in job["preloads"]:
        sys.path.append(str(Path(preload).parent))  # for modules beside it
        runpy.run_path(preload)
    if job["count"]:
        _count(folder)
        return
    program = torch.export.load(job["model"])
    if job["inputs"]:
        program._example_inputs = (tuple(torch.load(job["inputs"])), {})
    launcher = write_launcher(program)
    sys.argv = [launcher, "minify", *job["flags"]]
    with mock.patch.object(torch._inductor, _COMPILE, _noting(folder / "queries")):
        runpy.run_path(launcher, run_name="__main__")


def write_launcher(program: torch.export.ExportedProgram) -> str:
    """Have PyTorch write the launcher that it writes before it compiles a program.

    At level 3, which is for programs that crash. The compilation itself is left out.
    """
    dumping = {"aot_inductor.dump_aoti_minifier": True, "aot_inductor.repro_level": 3}
    with (
        config.patch(dumping),
        mock.patch.object(torch._inductor, _COMPILE, return_value=""),
    ):
        torch._inductor.aoti_compile_and_package(program)
    return get_minifier_repro_path()


def _noting(path: Path) -> Any:
    """Wrap what compiles a program: note how each of them ends."""
    compile_ = getattr(torch._inductor, _COMPILE)

    def noted(*args: Any, **kwargs: Any) -> Any:
        with path.open("a") as file:
            print("asked:", end=" ", file=file, flush=True)  # it may not come back
            try:
                answer = compile_(*args, **kwargs)
            except Exception as error:
                print(repr(error)[:2000].replace("\n", " "), file=file)
                raise
            print("passes", file=file)
            return answer

    return noted


def _count(folder: Path) -> None:
    """Say how large the program is that the last repro loads."""
    found = sorted(folder.rglob("checkpoints/exported_program.pt2"))
    if not found or not (folder / "repro.py").exists():
        return
    program = torch.export.load(found[-1])
    answer = {
        "program": str(found[-1]),
        "operators": count_operators(program.graph_module),
        "dynamic_dims": dynamic_dims(program),
    }
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
