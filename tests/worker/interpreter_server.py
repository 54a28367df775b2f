"""A server for tests: each line on stdin names a case, each answer is a JSON line.

A child per case, because interpretation cannot be switched off again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from shrinkfx.worker.interpreter import backend as interpreter
from shrinkfx.worker.interpreter.backend import (
    GeneratedCode,
    Probe,
    Report,
    Unsupported,
)
from shrinkfx.worker.interpreter.memory_checks import CHECKER


def main() -> None:
    torch.set_num_threads(1)
    threads = len(os.listdir("/proc/self/task"))
    interpreter.warm_up()
    assert len(os.listdir("/proc/self/task")) == threads
    sys.stdout.flush()
    answers = os.dup(1)
    os.dup2(2, 1)
    for line in sys.stdin:
        read, write = os.pipe()
        if not os.fork():
            os.close(read)
            os.write(write, json.dumps(_answer(line.split())).encode() + b"\n")
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            os.write(answers, pipe.read() or b'{"died": true}\n')
        os.wait()


def _answer(words: list[str]) -> dict[str, Any]:
    try:
        if words[0] == "kernel":
            import cuda_kernels

            cuda_kernels.start()
            found = cuda_kernels.CASES[words[1]]()
            return {"findings": found, "unseen": CHECKER.unseen}
        if words[0] == "healthy":
            return _healthy(*words[1:])
        return _probe(*words)
    except Unsupported as reason:
        return {"unsupported": reason.reason}
    except Exception:  # noqa: BLE001 - told in the answer
        return {"error": traceback.format_exc()}


def _probe(name: str, probe: str, arch: str, *more: str) -> dict[str, Any]:
    """Ask a probe about a program, with variables or ``_SETTINGS`` set."""
    from cuda_programs import CASES

    variables = dict(word.split("=") for word in more)
    calls, in_eager, falls_back = (
        int(variables.pop(name, n)) for name, n in _SETTINGS.items()
    )
    os.environ.update(variables)
    torch.manual_seed(0)
    case = CASES[name]()
    with torch.no_grad():
        exported = torch.export.export(
            case.module.eval(), case.args, dynamic_shapes=case.dynamic
        )
    before = str(exported)
    if not falls_back:  # as for symbolic sizes, which cannot be exported here
        FakeTensorMode.can_run_unsafe_fallback = lambda *_: False  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        code = interpreter.generate(
            exported,
            {Probe(probe)},
            folder=Path(folder),
            arch=arch,
            options=case.options,
        )
        assert str(exported) == before
        args = case.run or case.args
        return _run(code, Probe(probe), args, calls, in_eager=bool(in_eager))


_SETTINGS = {"calls": 1, "in_eager": 0, "falls_back": 1}


_REFUSED = "At least one", "put_handles["


def _as_answer(outcome: interpreter.RunOutcome) -> dict[str, Any]:
    return {**asdict(outcome), "findings": [asdict(f) for f in CHECKER.findings]}


def _run(
    code: GeneratedCode,
    probe: Probe,
    args: tuple[Any, ...],
    calls: int,
    *,
    in_eager: bool,
) -> dict[str, Any]:
    answer: dict[str, Any] = {"wrapper": code.wrapper}
    try:
        if probe is Probe.HINTS:
            if in_eager:
                interpreter.switch_on(code.arch)
                with interpreter.check_user_kernels(probe):
                    code.exported.module(check_guards=False)(*args)
            return {**answer, **_as_answer(code.benchmark())}
        compiled = interpreter.load_code(code, probe)
        for _ in range(calls - 1):
            compiled(*args)
        actual = compiled(*args)
        answer |= _as_answer(compiled.outcome)
    except Report as report:
        lines = [str(finding) for finding in report.findings]
        found = [asdict(finding) for finding in report.findings]
        return {**answer, "message": str(report), "lines": lines, "findings": found}
    except Unsupported as reason:
        return {**answer, "unsupported": reason.reason}
    except RuntimeError as error:
        if not any(words in str(error) for words in _REFUSED):
            raise
        return {**answer, "refused": str(error)}
    if not compiled.outcome.compares:
        return answer  # there are no values to compare
    eager = code.exported.module(check_guards=False)
    for _ in range(calls - 1):
        eager(*args)
    expected = torch.utils._pytree.tree_leaves(eager(*args))
    try:
        torch.testing.assert_close(actual, expected, atol=2e-2, rtol=2e-2) if any(
            t.dtype is torch.bfloat16 for t in expected
        ) else torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
        answer["difference"] = ""
    except AssertionError as error:
        answer["difference"] = str(error)
    return answer


def _healthy(name: str, precision: str, shapes: str) -> dict[str, Any]:
    """Ask all probes about a model that has no fault, at one size or at five."""
    from support.healthy_models import MODELS, SIZES

    torch.manual_seed(0)
    model, dtype = MODELS[name], getattr(torch, precision)
    module = model.make().eval().to(dtype)

    def inputs(size: int, dtype: torch.dtype = dtype) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(size)
        given = (
            t.to(torch.bfloat16) if t.is_floating_point() else t for t in draw(size)
        )
        return tuple(t.to(dtype) if t.is_floating_point() else t for t in given)

    draw = model.inputs
    dynamic = model.dynamic() if shapes == "dynamic" else None
    with torch.no_grad():
        exported = torch.export.export(module, inputs(5), dynamic_shapes=dynamic)
    sizes = SIZES if dynamic else (5,)
    with tempfile.TemporaryDirectory() as folder:
        code = interpreter.generate(exported, set(Probe), folder=Path(folder))
        accesses = code.benchmark().accesses
        compiled = interpreter.load_code(code, Probe.CONTRACT)
        results = [compiled(*inputs(size)) for size in sizes]
    exact = module.float()
    with torch.no_grad():
        expected = [exact(*inputs(size, torch.float32)) for size in sizes]
    limit = 1e-4 if dtype is torch.float32 else 5e-2
    for (actual,), exactly in zip(results, expected, strict=True):
        assert actual.shape == exactly.shape
        if not model.compares:
            continue
        torch.testing.assert_close(actual.float(), exactly, atol=limit, rtol=limit)
    return {"accesses": accesses + compiled.outcome.accesses, "sizes": len(sizes)}


if __name__ == "__main__":
    main()
