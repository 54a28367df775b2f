"""Candidates as statements and recipes: written down, and made programs again."""
