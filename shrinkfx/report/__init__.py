"""Write the results of a run: repro.py, minimal.pt2, summary.json, ISSUE.md, the page.

This package does not import torch.
"""
