"""The parts of the source that do not need Spark: options, views of the data, and plans of queries and streams.

Spark's readers are in `pipeline.spark`; records are read in `pipeline.reading`. `pipeline.spark` and
`pipeline.cli` import it.
"""
