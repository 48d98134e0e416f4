"""The source of messages without Spark: options, what there is to read, plans of queries and of streams."""
