"""ONE RUN, phase by phase: with ``api``, the only room that knows all. No torch."""
