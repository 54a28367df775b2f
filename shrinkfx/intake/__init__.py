"""Resolve the user's input to a failing program: objects, dumps and scripts."""
