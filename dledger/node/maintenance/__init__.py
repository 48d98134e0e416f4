"""Background work of a node: the table of its periodic jobs, and retention (the deletion of old entries).

`dledger.node` imports it; applications add their own jobs to the table.
"""
