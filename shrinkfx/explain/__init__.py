"""Find the cause of the reduced program's failure; no module imports torch."""
