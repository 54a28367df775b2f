"""A run that looks for failing sizes, and what it finds."""
