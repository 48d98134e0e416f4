"""Reads slices of a log: finds and checks records, applies the policy for damaged bytes, and yields Arrow batches.

Slices are planned in `pipeline.log`, columns are defined in `pipeline.columns`. Sources, archives, audits, rebuilds and
reports import it.
"""
