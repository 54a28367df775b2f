"""The command line with a worker that needs no torch."""
