"""Clusters of processes on this machine, under one folder: for bench, demo, scripts and tests.

The package starts the command line in child processes and imports no server code. Bench, command line, scripts and
tests import it.
"""
