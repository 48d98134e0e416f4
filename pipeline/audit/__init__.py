"""Compares replicas of a log, and reports where they differ and which of them is wrong."""
