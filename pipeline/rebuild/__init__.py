"""Rebuilds consume queues and key index from slices of a log."""
