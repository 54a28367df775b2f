"""What a GPU's driver says in the kernel's log, which is a plain file here."""

from __future__ import annotations

from pathlib import Path

from shrinkfx.worker.forkserver.supervise import driver_log

FAULT = "NVRM: Xid (PCI:0000:65:00): 31, pid=4711, name=python, MMU Fault"
LOST = "NVRM: Xid (PCI:0000:65:00): 79, pid='<unknown>', GPU has fallen off the bus."


def record(text: str, number: int = 1) -> str:
    return f"4,{number},12345678,-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:65:00\n"


def test_only_driver_failures_logged_during_the_run_are_read(tmp_path: Path) -> None:
    log, driver = tmp_path / "kmsg", tmp_path / "nvidiactl"
    driver.touch()
    log.write_text(record(LOST))
    with driver_log(log, driver) as kernel, log.open("a") as more:
        assert kernel.read_failures() == ""
        more.write(record("usb 1-1: new device") + record(FAULT, 2))
        more.flush()
        assert kernel.read_failures() == f"{FAULT}\n"
        assert kernel.read_failures() == ""


def test_no_failures_are_read_without_a_gpu_or_a_readable_log(tmp_path: Path) -> None:
    log, driver = tmp_path / "kmsg", tmp_path / "nvidiactl"
    with driver_log(log, driver) as kernel:  # neither is there
        assert kernel.read_failures() == ""
    driver.touch()
    with driver_log(log, driver) as kernel:
        assert kernel.read_failures() == ""
    log.write_text("")
    driver.unlink()
    with driver_log(log, driver) as kernel:
        log.write_text(record(FAULT))
        assert kernel.read_failures() == ""
