"""ASKING: the fork server's other end, and the oracles. No torch."""
