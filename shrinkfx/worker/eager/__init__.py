"""Runs in eager: their inputs, and the values that a cut feeds."""
