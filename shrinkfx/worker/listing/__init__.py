"""Candidates as statements and recipes: written down, rewritten, and run again."""
