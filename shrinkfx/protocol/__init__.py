"""Define the records that parent and worker exchange as JSON lines."""
