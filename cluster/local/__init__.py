"""Clusters of processes on this machine, under one folder: for bench, demo, scripts and tests.

It starts the command line in processes of its own and imports no server. Bench, command line, scripts and tests
import it.
"""
