"""Lakes: messages as a Delta table of Parquet files, committed batch by batch.

The transaction log of the Delta table decides which files belong to a lake (ADR 96); the library `deltalake` writes it.
`files` writes data files in tasks, `lake` commits them, `maintenance` joins small files, deletes unreferenced ones and
checks all, `conversion` converts lakes of older versions. Spark's writer and reader are in `pipeline.spark`.
"""
