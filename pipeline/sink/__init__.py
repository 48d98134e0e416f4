"""The sinks without Spark: rows become messages of a log, and the options of both sinks."""
