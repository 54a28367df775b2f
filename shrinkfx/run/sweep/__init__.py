"""A run that searches for failing sizes, and its findings."""
