"""A folder in front of PYTHONPATH: its ``sitecustomize`` is run by each Python."""
