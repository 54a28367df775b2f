"""WHAT A USER TYPES. No torch."""
