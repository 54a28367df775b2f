"""The worker process, the only package that imports torch; started by name."""
