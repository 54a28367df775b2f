"""Load a program and its inputs from untrusted files, without executing their code."""
