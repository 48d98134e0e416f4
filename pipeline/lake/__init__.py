"""Lakes: messages as Parquet files in a directory, committed batch by batch."""
