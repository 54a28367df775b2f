"""Parse the log that instrumented C++ kernels write as they run."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KernelLog:
    """The log of the C++ kernels in one run.

    Attributes:
        launches: each launch: its kernel, and its arguments by parameter.
        running: the index of the launch that has not ended, or has thrown; None if
            there is none.
        refused: kernel, line and values of the first index that was rejected.
        fault: the address at which the process died, or ''.
        cut: whether there were too many launches to record all of them.
        at: kernel and line of the statement that was running; None if it was not
            recorded.
    """

    launches: tuple[tuple[str, dict[str, str]], ...] = ()
    running: int | None = None
    refused: tuple[str, int, dict[str, int]] | None = None
    fault: str = ""
    at: tuple[str, int] | None = None
    cut: bool = False

    @classmethod
    def read(cls, text: str) -> KernelLog:
        """Parse the log; its last line may be incomplete."""
        launches: list[tuple[str, dict[str, str]]] = []
        running, refused, fault, at = None, None, "", None
        lines = text.split("\n")
        for line in lines:
            word, *rest = line.split()[:2] or [""]
            pairs = dict(p.split("=", 1) for p in line.split()[2:] if "=" in p)
            if word == "launch" and rest:
                running = len(launches)
                launches.append((rest[0], pairs))
            elif word == "done":
                running = None
            elif word == "fault" and rest and not fault:
                fault = rest[0]
                kernel, number = ([*line.split()[2:4], "", ""])[:2]
                at = (kernel, int(number)) if number.isdigit() else None
            elif word == "refused" and rest and refused is None:
                place = line.split()[2:3]
                if place and place[0].isdigit():
                    refused = (rest[0], int(place[0]), _numbers(pairs))
            if fault:
                break
        return cls(tuple(launches), running, refused, fault, at, "cut" in lines)


def _numbers(pairs: dict[str, str]) -> dict[str, int]:
    return {n: int(v) for n, v in pairs.items() if re.fullmatch(r"-?\d+", v)}
