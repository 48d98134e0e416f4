"""Everything that needs PySpark: data sources, sinks, jobs, the session."""
