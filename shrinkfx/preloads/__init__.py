"""Find the parts of preloaded modules that a repro needs; imports no torch."""
