"""Compares replicas of a log, and reports where they differ and which of them is wrong.

It compares checksums of ranges, and records only where these differ; it never changes a store. The caller passes the
runner of its tasks (`pipeline.spark.jobs`). Only `pipeline.cli` imports it.
"""
