"""The other end of the fork server's line: start it, ask it, clear up after it."""
