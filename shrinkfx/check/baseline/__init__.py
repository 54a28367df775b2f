"""The baseline: the failure of the input program, as seen before the search."""
