"""Does a GPU see what the interpreter sees? ``python benchmarks/gpu.py --out FILE``.

Runs the CUDA cases of ``repros/``, each as it is, on the interpreter and, where there
is a GPU, through AOTInductor on that, as it is and under compute-sanitizer if that is
installed; prints a table and writes JSON. Without a GPU its columns stay empty.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from shrinkfx.check.baseline.on_interpreter import probe_baseline  # noqa: E402
from shrinkfx.check.baseline.stock import describe  # noqa: E402
from shrinkfx.check.client.server import WORKER, Server  # noqa: E402
from shrinkfx.check.oracle import CheckClient, Limits  # noqa: E402
from shrinkfx.errors import ShrinkfxError  # noqa: E402
from shrinkfx.protocol.choices import Backend, Probe  # noqa: E402
from shrinkfx.protocol.requests import CheckOptions  # noqa: E402

LIMITS = Limits(timeout_s=300.0, max_rss_bytes=32 << 30)


@dataclass(frozen=True)
class Row:
    """What a case is said to do, and what it did."""

    case: str
    expected: str
    interpreter: str
    gpu: str
    sanitizer: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, metavar="FILE", help="where JSON goes")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all cuda_*")
    options = parser.parse_args()
    names = options.cases or sorted(p.name for p in ROOT.glob("repros/cuda_*"))
    rows = []
    for name in names:
        rows.append(compare(name))
        print(f"{name}\n  expected     {rows[-1].expected}")
        print(f"  interpreter  {rows[-1].interpreter:.150}")
        print(f"  GPU          {rows[-1].gpu:.150}")
        print(f"  sanitizer    {rows[-1].sanitizer:.150}", flush=True)
    if options.out:
        result = {"on": machine(), "rows": [asdict(row) for row in rows]}
        options.out.write_text(json.dumps(result, indent=1))


def compare(name: str) -> Row:
    case = ROOT / "repros" / name
    expected = tomllib.loads((case / "expected.toml").read_text())
    with tempfile.TemporaryDirectory(prefix="shrinkfx-gpu-") as folder:
        model = Path(folder) / "model.pt2"
        export = [sys.executable, "-W", "ignore", str(ROOT / "repros" / "export.py")]
        subprocess.run([*export, name, str(model)], check=True, cwd=ROOT)
        preloads = [str(case / expected["preload"])] if expected["preload"] else []
        on_gpu = torch.cuda.is_available()
        return Row(
            name,
            f"{expected['kind']} in {expected['stage']}",
            interpret(model, preloads, expected["kind"]),
            run(model, preloads) if on_gpu else "",
            sanitize(model, preloads) if on_gpu else "",
        )


def serve(
    backend: Backend,
    model: Path,
    preloads: list[str],
    command: Sequence[str] = WORKER,
) -> Server:
    inputs = model.with_suffix(".inputs.pt")
    return Server(
        command=command,
        model=model,
        inputs=inputs if inputs.exists() else None,
        preloads=preloads,
        device="cuda",
        backend=backend,
    )


def interpret(model: Path, preloads: list[str], until: str) -> str:
    """Say in a line what the probes find of the whole program."""
    try:
        with serve(Backend.INTERPRETER, model, preloads) as server:
            compiler = CheckClient(server, LIMITS, CheckOptions(reference=False))
            base = probe_baseline(compiler, until, "", list(Probe), lambda _: None)
            return f"{base.probe}: {base.target}"
    except ShrinkfxError as error:
        return str(error)


def run(model: Path, preloads: list[str], command: Sequence[str] = WORKER) -> str:
    """Say in a line what the whole program does on the GPU."""
    try:
        with serve(Backend.AOTI, model, preloads, command) as server:
            compiler = CheckClient(server, LIMITS, CheckOptions(reference=False))
            return describe(compiler.original(fresh=True)[0])
    except ShrinkfxError as error:
        return str(error)


def sanitize(model: Path, preloads: list[str]) -> str:
    """Say in a line what compute-sanitizer reports of the whole program."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        return "compute-sanitizer is not installed"
    logs = model.with_name("sanitizer")
    logs.mkdir()
    options = ["--target-processes", "all", "--log-file", f"{logs}/%p.log"]
    seen = run(model, preloads, [sanitizer, *options, *WORKER])
    text = "\n".join(path.read_text() for path in sorted(logs.iterdir()))
    errors = sum(int(n) for n in re.findall(r"ERROR SUMMARY: (\d+) error", text))
    first = re.search(r"^=+ (.*(?:Invalid|Misaligned|ssert).*)$", text, re.MULTILINE)
    return f"{errors} errors: {first[1] if first else ''} (shrinkfx: {seen})"


def machine() -> dict[str, str]:
    about = {"torch": torch.__version__, "Python": platform.python_version()}
    if torch.cuda.is_available():
        about["GPU"] = torch.cuda.get_device_name()
        about["CUDA"] = str(torch.version.cuda)
    return about


if __name__ == "__main__":
    main()
