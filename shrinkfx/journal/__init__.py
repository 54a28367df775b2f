"""The journal of a run or a sweep, in its output folder. No torch."""
