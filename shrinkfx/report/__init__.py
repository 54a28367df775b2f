"""WHAT COMES OUT: repro.py, minimal.pt2, summary.json. No torch."""
