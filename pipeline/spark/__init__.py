"""The modules that need PySpark: data sources, sinks, jobs, the session.

The work of a task is in the other packages, so that it can be tested without a JVM. Only `pipeline.cli` and the package
that Spark loads by name (`pyspark_dledger`) import it.
"""
