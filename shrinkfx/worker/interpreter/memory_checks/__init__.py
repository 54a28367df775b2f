"""Check a kernel's memory accesses."""
