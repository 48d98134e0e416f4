"""Measurements: log, broker and message store.

What is measured and how figures are summed up; how they are printed is in `cluster.cli.bench`. Only the command line
imports it.
"""
