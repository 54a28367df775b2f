"""Options of a run, each defined once, and its result. It does not import torch."""
