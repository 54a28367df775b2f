"""What a compiled program is made of, and what each kernel was given."""
