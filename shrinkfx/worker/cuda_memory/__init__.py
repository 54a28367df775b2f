"""Memory errors on a GPU made visible: red zones, inaccessible pages, what is free."""
