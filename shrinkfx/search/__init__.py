"""The search: strategies propose edits, the reducer decides. Does not import torch."""
