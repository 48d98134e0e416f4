"""The bench commands and the output of their figures.

The measurements are in `cluster.bench`. Only `cluster.cli.loading` imports this package.
"""
