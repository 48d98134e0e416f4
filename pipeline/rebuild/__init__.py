"""Consume queues and key index, made anew from slices of a log."""
