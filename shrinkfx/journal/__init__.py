"""WHAT IS REMEMBERED of a run, and of a sweep, in its output folder. No torch."""
