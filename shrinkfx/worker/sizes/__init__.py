"""Symbols of a program: what they stand for, and what they may be."""
