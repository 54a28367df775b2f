"""``ISSUE.md``: PyTorch's form for a bug report, filled in."""
