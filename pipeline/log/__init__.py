"""The log as files: stores, the offset up to which they may be read, and slices for tasks.

It plans slices from file names and positions without reading the log (ADR 15); records are found and decoded in
`pipeline.reading`. All packages of the pipeline except `common` and `columns` may import it.
"""
