"""ANSWERING: the only room with torch. Nobody imports it; it is started by name."""
