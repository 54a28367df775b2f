"""Memory errors on the CPU made visible: guard pages, AddressSanitizer."""
