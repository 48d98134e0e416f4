"""The report on a log: computed in tasks, merged, and rendered as an HTML page.

Figures are sketches of bounded size that can be merged in any order. The tasks are run by
`pipeline.spark.jobs`. `pipeline.spark` and `pipeline.cli` import it.
"""
