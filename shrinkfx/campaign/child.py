"""Run shrinkfx in a process that dies with the one that has started it.

A triage may be killed, and Ray may kill a task and repeat it elsewhere. Then the run
must have ended before another process continues it.
"""

import ctypes
import runpy
import signal

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    runpy.run_module("shrinkfx", run_name="__main__", alter_sys=True)
