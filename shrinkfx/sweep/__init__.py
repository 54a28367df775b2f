"""Search for sizes at which a program with dynamic dims fails. No torch."""
