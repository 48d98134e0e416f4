"""One replica of a broker: the messages and the broker state of one node, replicated or standalone.

`port` is the interface for services; `replicated` and `standalone` implement it; `bootstrap` prepares a node before it
joins its group. The package contains no service and no wire format. `cluster.api` and `cluster.server` import it.
"""
