"""Run shrinkfx in a process that dies with the one that has started it.

If a triage is killed, its runs must have ended before another call continues them.
"""

import ctypes
import os
import runpy
import signal

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has died before
        os.kill(os.getpid(), signal.SIGKILL)
    runpy.run_module("shrinkfx", run_name="__main__", alter_sys=True)
