"""WHAT A USER TYPES, and what is seen of a run. No torch."""
