"""Printed programs: statements, inputs and weights, which shrinkfx simplifies.

The search does this after no operator can be removed.
"""
