"""One process that answers each request in a child of its own. No torch."""
