"""Fork a child for each request, limit it, and report how it ended. No torch."""
