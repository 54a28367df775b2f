"""AT WHICH SIZES a program with dynamic dims fails. No torch, no processes."""
