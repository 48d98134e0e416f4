"""Rebuilds consume queues and key index from slices of a log.

Tasks write the units and keys of one slice each; one process joins them. The formats of the files are in `store`; the
caller passes the runner of the tasks (`pipeline.spark.jobs`). Only `pipeline.cli` imports it.
"""
