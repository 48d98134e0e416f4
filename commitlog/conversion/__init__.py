"""From a plain log to a replicated one: the old files of a group, and the log that continues them.

What the nodes of a group must agree on before they start, and how old files are read and deleted later. The network
side is `cluster.replica.bootstrap`. `commitlog.replicated` and `cluster.replica` import it.
"""
