"""Conversion of a plain log to a replicated one: the base log of a group, and the log that continues it.

What the nodes of a group must agree on before they start, and how the base log is read and deleted later. The network
side is `cluster.replica.bootstrap`. `commitlog.replicated` and `cluster.replica` import it.
"""
