"""What is known of a failure's cause: its records, and their words."""
