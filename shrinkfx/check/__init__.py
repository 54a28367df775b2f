"""Checks: the client of the fork server, and the oracles. Does not import torch."""
