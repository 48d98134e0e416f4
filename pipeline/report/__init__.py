"""The report on a log: computed in tasks, merged, and rendered as an HTML page."""
