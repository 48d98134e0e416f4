"""The bench commands and how their figures are printed.

What is measured is in `cluster.bench`. Only `cluster.cli.loading` imports it.
"""
