"""Compares replicas of a log, and says where they differ and which of them is wrong."""
