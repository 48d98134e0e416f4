"""Measurements: log, broker and message store.

The package runs the measurements and summarises the figures; `cluster.cli.bench` prints them. Only the command line
imports it.
"""
