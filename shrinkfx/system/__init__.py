"""What operating systems and file systems offer: processes, memory, locks, folders."""
