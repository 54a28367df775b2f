"""Expose memory errors on the CPU with guard pages and AddressSanitizer."""
