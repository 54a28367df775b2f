"""A program as statements, and what they are given: what is reduced after operators."""
