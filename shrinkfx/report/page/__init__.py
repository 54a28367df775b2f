"""``report.html``: a run as one page, which reads nothing from elsewhere."""
