"""Compile with AOTInductor: as users do, and in less time from the same code."""
