"""Reads slices of a log: finds and checks records, applies the policy for damaged bytes, and yields Arrow batches."""
