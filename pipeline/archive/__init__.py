"""Archives of a log, and their restore: into topics of brokers, or into a new store."""
