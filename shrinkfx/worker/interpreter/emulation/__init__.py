"""Emulate GPU behavior that Triton's interpreter lacks or implements differently."""

from . import assembly, constants, floats, libdevice, logic


def emulate_gpu() -> None:
    """Patch Triton's interpreter in this process."""
    libdevice.give_bodies()
    assembly.run_assembly()
    floats.patch_reductions()
    logic.compile_logic()
    floats.patch_float_conversions()
    constants.mix_constants()
