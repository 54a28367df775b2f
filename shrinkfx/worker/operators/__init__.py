"""Custom operators, held against what they declare."""
