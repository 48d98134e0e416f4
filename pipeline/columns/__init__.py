"""Messages as Arrow columns: names and types, records to columns, and columns to records.

Pure functions on bytes and Arrow arrays; files are read in `pipeline.reading`. All packages of the pipeline except
`common` and `log` may import it.
"""
