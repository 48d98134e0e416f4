"""Archives of a log, and their restore: into topics of brokers, or into a new store.

An archive is a lake with every column; the offset table maps old offsets to those after a restore. The callers pass
the runner of its tasks: Spark, or a loop in tests. `pipeline.spark` and `pipeline.cli` import it.
"""
