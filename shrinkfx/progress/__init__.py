"""Progress display of a run, on a terminal or in a notebook. No torch."""
