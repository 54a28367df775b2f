"""Inside of a user's script: what it is about to have AOTInductor do, on disk first.

Loaded by its place, under another name, into the interpreter that runs the script. That
may be one without shrinkfx: nothing here imports anything of it but from this folder.
"""
