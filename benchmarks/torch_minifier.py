"""Run PyTorch's own AOTI minifier: ``python torch_minifier.py JOB.json``.

The job names model, inputs, preloads, a folder, whether results are compared, and what
the failure says.
It is given what its own launcher does not give: the custom operators are registered,
it starts from the failing inputs, and it knows what a failing compiler says.
``queries`` in the folder grows by a line with each compilation; ``answer.json`` holds
what is left.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import torch._inductor
from torch._dynamo.repro import aoti

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from shrinkfx.worker.describe import count_operators, dynamic_dims


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
    _count_queries(folder / "queries")
    sys.argv = sys.argv[:1]
    with torch.no_grad():
        aoti.run_repro(
            program,
            config_patches={},
            accuracy="accuracy" if job["compares"] else "",
            check_str=job["says"] or None,
            command="minify",
            save_dir=str(folder / "torch_compile_debug"),
        )


def _count_queries(path: Path) -> None:
    compile_ = torch._inductor._aoti_compile_and_package_inner

    def counted(*args: Any, **kwargs: Any) -> Any:
        with path.open("a") as file:
            file.write("query\n")
        return compile_(*args, **kwargs)

    torch._inductor._aoti_compile_and_package_inner = counted


def _count(folder: Path) -> None:
    """Say how large the program is that the last repro loads."""
    found = sorted(folder.rglob("exported_program.pt2"))
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
