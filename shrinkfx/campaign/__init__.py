"""From many failing programs to a list of bugs. No torch."""
