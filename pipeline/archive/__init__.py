"""Archives of a log, and the ways back: into topics of brokers, and into a new store."""
