"""Eager runs: their inputs, and the values that candidates are fed with."""
