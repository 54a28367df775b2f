"""The client of the fork server: start it, send requests, clean up after it."""
