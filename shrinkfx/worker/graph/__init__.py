"""From a program to its skeleton, and from a candidate back to a program."""
