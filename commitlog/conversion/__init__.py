"""Conversion of a plain log to a replicated one: the base log of a group, and the log that continues it.

The agreement of the nodes of a group on the base log before they start; reading and deleting it later. The network side
is `cluster.replica.bootstrap`. `commitlog.replicated` and `cluster.replica` import it.
"""
