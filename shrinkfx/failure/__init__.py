"""WHAT IT MEANS to fail: kinds, identities and verdicts. No torch."""
