"""The report of what a log holds: gathered by tasks, merged, and rendered as a page."""
