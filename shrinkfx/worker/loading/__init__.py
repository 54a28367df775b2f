"""From files of others to a program and its inputs, without running what they hold."""
