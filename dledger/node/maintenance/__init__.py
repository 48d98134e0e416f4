"""Background work of a node: two of its periodic jobs, and retention (the deletion of old entries).

`dledger.node` imports it; the list of all periodic jobs is in `dledger.node.composition`.
"""
