"""The explanation of a failure: the records of ``explain.json``, and their text."""
