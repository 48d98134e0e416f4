"""What is in a log: gathered by tasks, merged, and told on a page."""
