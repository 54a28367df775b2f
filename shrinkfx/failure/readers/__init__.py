"""Parsers of foreign text about failures: logs, reports, findings."""
