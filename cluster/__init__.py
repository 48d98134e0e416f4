"""The node process: configuration, command line, metrics, offline inspection; the composition root."""
