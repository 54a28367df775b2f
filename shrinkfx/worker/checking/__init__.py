"""The check itself: compile, run, compare with eager."""
