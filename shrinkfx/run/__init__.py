"""One run, phase by phase; with ``api``, the only package that knows all. No torch."""
