"""The command line: options, tasks, printed results. It does not import torch."""
