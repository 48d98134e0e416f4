"""One replica of a broker: the messages and the broker state of one node, replicated or standalone.

`port` is what services see; `replicated` and `standalone` implement it; `bootstrap` makes a node ready before it
joins its group. No service and no wire format is here. `cluster.api` and `cluster.server` import it.
"""
