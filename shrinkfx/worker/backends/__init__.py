"""The ways to compile and run a program; each has ``build`` and ``load``."""
