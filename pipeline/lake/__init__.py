"""Lakes: messages as Parquet files in a directory, committed batch by batch.

A manifest for each batch decides which files belong to the lake (ADR 16); `maintenance` compacts, verifies and deletes
unreferenced files; `tables` writes into a table of Delta Lake or Iceberg. Spark's writer is in `pipeline.spark`.
`pipeline.sink`, archives and Spark's modules import it.
"""
