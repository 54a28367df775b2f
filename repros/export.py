"""Export a case: ``python repros/export.py SLUG FILE.pt2``.

Writes the program, and ``FILE.inputs.pt`` beside it where the case fails on other
inputs than those it is exported with. The planted bug is not needed for that.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import torch


def load(slug: str) -> ModuleType:
    """Import ``repros/<slug>/make.py``."""
    path = Path(__file__).resolve().parent / slug / "make.py"
    spec = importlib.util.spec_from_file_location(f"{slug}_make", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a branch of a cond is traced by its name
    spec.loader.exec_module(module)
    return module


def main(slug: str, file: Path) -> None:
    """Export the case ``slug`` into ``file``."""
    case = load(slug)
    module, args, dynamic_shapes = case.make()
    kwargs = case.kwargs() if hasattr(case, "kwargs") else None
    with torch.no_grad():
        program = torch.export.export(
            module, args, kwargs, dynamic_shapes=dynamic_shapes
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.export.save(program, file)
    if hasattr(case, "run_args"):
        torch.save(tuple(case.run_args()), file.with_suffix(".inputs.pt"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
