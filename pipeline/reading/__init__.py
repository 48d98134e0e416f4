"""Reads slices of a log: finds records, checks them, does with damage what the policy says, gives Arrow batches."""
