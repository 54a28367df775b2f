"""Expose memory errors on a GPU with red zones, guard pages and compute-sanitizer."""
