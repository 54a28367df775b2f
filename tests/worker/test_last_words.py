"""The terminate handler alone: small C++ programs with OpenMP, without torch."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from shrinkfx.failure.classify import classify_ending
from shrinkfx.failure.readers.threads import sort_thread_exceptions
from shrinkfx.failure.signature import Kind
from shrinkfx.protocol.answers import Ending
from shrinkfx.worker.forkserver import last_words

PROGRAM = r"""
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unistd.h>
extern "C" void shrinkfx_keep_words();

struct Speechless {};
struct Slow : std::exception {
  const char *what() const noexcept override { usleep(50000); return "at last"; }
};
struct Throwing : std::exception {
  const char *what() const noexcept override { throw 1; }
};

static void do_it(const std::string &how, int i, int n) {
  int part = i / (n / 16);
  if (how == "all") throw std::out_of_range("index out of bounds: 0 <= tmp2 < 9L");
  if (how == "slowly") throw Slow();
  if (how == "one" && part == 5) throw std::runtime_error("only here");
  if (how == "late" && i % (n / 16) == 0) {
    usleep(part * 10000);
    throw std::runtime_error("part " + std::to_string(part));
  }
  if (how == "int") throw 3;
  if (how == "speechless") throw Speechless();
  if (how == "throwing") throw Throwing();
  if (how == "terminate") std::terminate();
}

int main(int, char **arguments) {
  std::string how = arguments[1];
  shrinkfx_keep_words();
  if (how == "caught") {
    try { throw std::runtime_error("caught"); } catch (...) { return 0; }
  }
  if (how == "outside") throw std::runtime_error("outside");
#pragma omp parallel for num_threads(16)
  for (int i = 0; i < 16000; i++) do_it(how, i, 16000);
}
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, library = tmp_path_factory.mktemp("threads"), last_words.build()
    (folder / "program.cpp").write_text(PROGRAM)
    compiler = os.environ.get("CXX", "g++")
    flags = ["-fopenmp", "-w", "program.cpp", str(library), "-o", "program"]
    subprocess.run([compiler, *flags], cwd=folder, check=True, timeout=120)

    def run(how: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [folder / "program", how],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def threads_of(log: str) -> list[int]:
    return [int(n) for n in re.findall(r"^\(that was thread (\d+)\)$", log, re.M)]


def test_every_thread_logs_its_exception_with_a_backtrace(run: Run) -> None:
    for _ in range(20):
        done = run("all")
        assert done.returncode == -signal.SIGABRT
        assert sorted(threads_of(done.stderr)) == list(range(16))
        assert done.stderr.count("index out of bounds: 0 <= tmp2 < 9L\n") == 16
        assert "recursively" not in done.stderr
        assert done.stderr.count("__cxa_throw") == 16
        seen = classify_ending(Ending("signal", signal.SIGABRT, "run", log=done.stderr))
        assert seen.signature is not None
        assert seen.signature.kind is Kind.ASSERT


def test_handler_waits_for_a_slow_exception_message(run: Run) -> None:
    assert run("slowly").stderr.count("  what():  at last\n") == 16


def test_handler_waits_for_threads_that_throw_later(run: Run) -> None:
    log = run("late").stderr
    said = [
        int(n)
        for n in re.findall(r"what\(\):  part (\d+)", sort_thread_exceptions(log))
    ]
    assert said == list(range(16))
    first = classify_ending(Ending("signal", signal.SIGABRT, "run", log=log)).signature
    assert first is not None
    assert first.text == "RuntimeError: part 0"


def test_exception_in_one_of_many_threads_is_logged(run: Run) -> None:
    done = run("one")
    assert done.returncode == -signal.SIGABRT
    assert threads_of(done.stderr) == [5]
    assert "what():  only here\n" in done.stderr


def test_single_thread_run_logs_the_exception_of_the_first_part(run: Run) -> None:
    done = run("late", **last_words.ONE_THREAD)
    assert threads_of(done.stderr) == [0]
    assert "thread 0 of 1 after" in done.stderr
    assert "part 0\n" in done.stderr


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("int", "after throwing an instance of 'int'\n"),
        ("speechless", "after throwing an instance of 'Speechless'\n"),
        ("terminate", "without an active exception\n"),
        ("throwing", "terminate called recursively\n"),
        ("outside", "thread 0 of 1 after throwing an instance of 'std::runtime_error'"),
    ],
)
def test_other_terminations_are_logged(run: Run, how: str, said: str) -> None:
    done = run(how)
    assert done.returncode == -signal.SIGABRT
    assert said in done.stderr


def test_caught_exception_is_not_logged(run: Run) -> None:
    done = run("caught")
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_compiler_is_reported_as_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    last_words.log_thread_exceptions()
    assert "may be lost: no C++ compiler found" in capsys.readouterr().err
