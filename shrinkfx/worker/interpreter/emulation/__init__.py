"""Emulate GPU behavior that Triton's interpreter lacks or implements differently."""
