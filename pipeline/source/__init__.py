"""The parts of the source that do not need Spark: options, views of the data, and plans of queries and streams."""
