"""Record how the programs of ``cases.py`` fail: ``python tests/failure/record.py``.

Writes ``recorded/<family>/<case>.json``, one per case: the ``Ending`` that a check
gets; and ``<case>.script.json``: a repro's text, and how a bare Python ended on it.
Arguments choose families, or single cases as ``family/case``. Each takes some ten
seconds of two cores; a recording that changes is one to look at.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE)]

import torch  # noqa: E402

THREADS = torch.get_num_threads()
torch.set_num_threads(1)  # a pool that cases start would not survive a fork

from cases import FAMILIES, Case  # noqa: E402

from shrinkfx.check.client.server import Server  # noqa: E402
from shrinkfx.check.oracle import CheckClient, Limits  # noqa: E402
from shrinkfx.failure.classify import classify_ending  # noqa: E402
from shrinkfx.failure.readers.script import convert_script_ending  # noqa: E402
from shrinkfx.failure.signature import Signature  # noqa: E402
from shrinkfx.preloads.preload_bundle import Definitions  # noqa: E402
from shrinkfx.program.candidate import Candidate  # noqa: E402
from shrinkfx.program.skeleton import Skeleton  # noqa: E402
from shrinkfx.protocol.answers import Answer, Description, Ending, Printed, Ready  # noqa: E402  # noqa: E402
from shrinkfx.protocol.requests import (  # noqa: E402  # noqa: E402
    CheckOptions,
    Describe,
    Request,
    RunScript,
    Setup,
    WriteCandidate,
)
from shrinkfx.report.record import (  # noqa: E402
    Conditions,
    Failure,
    Programs,
    ProgramSize,
    RunRecord,
)
from shrinkfx.report.repro import (  # noqa: E402
    DATA,
    Data,
    write_repro,
)
from shrinkfx.worker.aoti import backend as aoti  # noqa: E402
from shrinkfx.worker.forkserver.serve import open_connection, serve  # noqa: E402
from shrinkfx.worker.forkserver.supervise import Note, Work  # noqa: E402
from shrinkfx.worker.loading.load import load  # noqa: E402
from shrinkfx.worker.model import Inputs, Program  # noqa: E402
from shrinkfx.worker.tasks import Worker  # noqa: E402

PLANTS = HERE / "plants.py"
RECORDED = HERE / "recorded"
_SERVE = (sys.executable, "-W", "ignore", __file__, "--serve")
_TELLING = re.compile(r"error|Error|what\(\)|Traceback|terminate|repro\.py|fused")
_TEMPORARY = re.compile(r"/tmp/(?:[\w.+-]*(?:shrinkfx|inductor|tmp)[\w.+-]*/)+")
_WIDTH, _FIRST, _LAST, _AROUND = 400, 12, 24, 40


def record(family: str, name: str, case: Case, server: Server, bare: Server) -> None:
    """Run a case as a check does, and as a repro where it asks for that."""
    with tempfile.TemporaryDirectory() as folder:
        compiler = _compiler(case, Path(folder), server)
        seen, ending = compiler.run_input_program()
        _write(family, name, ending=ending)
        print(f"{family}/{name}: {seen.signature or seen}"[:200], flush=True)
        if not case.script or seen.signature is None:
            return
        text = _print(compiler, case, seen.signature, Path(folder))
        ending = _run(text, case, Path(folder), bare)
    _write(family, f"{name}.script", ending=ending, script=text)
    again = classify_ending(convert_script_ending(ending, text))
    print(f"{family}/{name}.script: {again.signature or again}"[:200], flush=True)


def _compiler(case: Case, folder: Path, server: Server) -> CheckClient:
    """Save the program, and have every request name it."""
    model, inputs = folder / "model.pt2", folder / "failing.pt"
    torch.export.save(case.exported(), model)
    if case.failing:
        torch.save(case.failing, inputs)
    setup = Setup(
        directory=str(folder),
        model=str(model),
        inputs=str(inputs) if case.failing else None,
        inductor=case.inductor,
    )
    # To a server for all cases, each says here what it is about.
    told = {"setup": setup.to_json(), "environment": dict(case.environment)}
    options = CheckOptions(reference=case.reference, evidence=json.dumps(told))
    return CheckClient(server, Limits(case.timeout_s, case.max_rss_bytes), options)


def _print(
    compiler: CheckClient, case: Case, signature: Signature, folder: Path
) -> str:
    """Have the program printed, as a run would at its end."""
    described = compiler.ask(Describe()).answer
    assert isinstance(described, Description)
    skeleton = json.loads(Path(described.skeleton).read_text())
    whole = Candidate.from_skeleton(Skeleton.from_json(skeleton)).to_json()
    path, data = str(folder / "minimal.pt2"), str(folder / DATA)
    answer = compiler.ask(WriteCandidate(whole, path, data)).answer
    assert isinstance(answer, Printed)
    assert answer.source is not None
    conditions = Conditions(
        case.environment, inductor=case.inductor, reference=case.reference
    )
    programs = Programs(ProgramSize(1), ProgramSize(1), cut=1)
    record = RunRecord(Failure(signature, signature), programs, conditions=conditions)
    definitions = Definitions(f"import {PLANTS.stem}")
    return write_repro(answer.source, record, [definitions], Data.EXACT).text


def _run(text: str, case: Case, folder: Path, bare: Server) -> Ending:
    """Run a repro in the folder that holds its data."""
    script = folder / "repro.py"
    script.write_text(text)
    shutil.copy(PLANTS, folder)
    task = RunScript(str(script), str(folder))
    limits = (case.timeout_s, case.max_rss_bytes)
    return bare.ask(Request(task, CheckOptions(), *limits, fresh=True))


def _write(family: str, name: str, *, ending: Ending, **more: Any) -> None:
    folder = RECORDED / family
    folder.mkdir(parents=True, exist_ok=True)
    data = {**more, "ending": _shortened(json.loads(ending.to_line()))}
    text = json.dumps(data, indent=1, ensure_ascii=False)
    (folder / f"{name}.json").write_text(text + "\n")


def _shortened(value: Any) -> Any:
    """Shorten folders and long texts; what is left is verbatim."""
    if isinstance(value, Mapping):
        return {key: _shortened(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(item) for item in value]
    return _bounded(_without_folders(value)) if isinstance(value, str) else value


def _without_folders(text: str) -> str:
    text = re.sub(r"(?:/[\w.+-]+)*/site-packages/", "/site-packages/", text)
    text = re.sub(r"(?:/[\w.+-]+)+/lib/python3", "/lib/python3", text)
    return _TEMPORARY.sub("/scratch/", text.replace(str(ROOT), "/src"))


def _bounded(text: str) -> str:
    """Keep both ends of a long text, and lines in between that tell the cause."""
    lines = [line[:_WIDTH] for line in text.splitlines()]
    telling = [i for i, line in enumerate(lines) if _TELLING.search(line)][:_AROUND]
    kept = {*range(_FIRST), *telling, *range(len(lines) - _LAST, len(lines))}
    texts = [line for i, line in enumerate(lines) if i in kept]
    return "\n".join(texts) + ("\n" if text.endswith("\n") else "")


def _serve() -> None:
    """Be a server that loads a program per request: torch is imported once."""
    with os.fdopen(0, "rb", buffering=0, closefd=False) as stdin:
        setup = Setup.from_line(stdin.readline())
    directory = Path(setup.directory)
    line = open_connection(directory / "server.log")
    aoti.warm_up()

    def answer(request: Request) -> Work:
        def work(note: Note, folder: Path) -> Answer:
            assert request.options.evidence is not None
            told = json.loads(request.options.evidence)
            os.environ.update(told["environment"])
            setup = Setup.from_json(told["setup"])
            worker = Worker(setup, THREADS, _program(setup))
            options = dataclasses.replace(request.options, evidence=None)
            asked = dataclasses.replace(request, options=options)
            return worker.perform(asked, note, folder)

        return work

    line.write(Ready())
    serve(line, answer, directory)


def _program(setup: Setup) -> Program:
    """Load a program with inputs of any dtype: to refuse those is its own task here."""
    program = load(dataclasses.replace(setup, inputs=None))
    if setup.inputs is None:
        return program
    failing = Inputs(torch.load(setup.inputs), {})
    return dataclasses.replace(program, failing=failing)


def _chosen(names: list[str]) -> Iterator[tuple[str, str]]:
    for name in names or FAMILIES:
        family, _, case = name.partition("/")
        yield from ((family, case) for case in ([case] if case else FAMILIES[family]))


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        _serve()
        return
    with Server(command=_SERVE) as server, Server(environment=None) as bare:
        for family, name in _chosen(sys.argv[1:]):
            record(family, name, FAMILIES[family][name], server, bare)


if __name__ == "__main__":
    main()
