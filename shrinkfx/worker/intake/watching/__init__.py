"""Capture, inside a user's script, the programs that go to Inductor.

Each step is written to disk before it begins. The package is loaded by path, under
another name, into the interpreter that runs the script. That interpreter may not have
shrinkfx, so the modules here import only the standard library and, by relative names,
modules of shrinkfx that do the same.
"""
