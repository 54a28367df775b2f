"""Kinds of failure, their identities, and verdicts on candidates. No torch."""
