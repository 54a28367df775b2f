"""What parent and worker say to each other: frozen records, as JSON lines."""
