"""Compile programs with AOTInductor, as users do or with the fast build."""
