"""The parts of the sinks that do not need Spark: conversion of rows to messages, and the options.

Spark's writers are in `pipeline.spark`, lakes in `pipeline.lake`. `pipeline.archive`, `pipeline.spark` and
`pipeline.cli` may import it.
"""
