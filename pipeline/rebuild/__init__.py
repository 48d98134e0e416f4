"""Consume queues and key index, rebuilt from slices of a log."""
