"""The modules that need PySpark: data sources, sinks, jobs, the session."""
