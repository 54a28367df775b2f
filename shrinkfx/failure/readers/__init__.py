"""From texts of others to what they say of a failure: logs, reports, findings."""
