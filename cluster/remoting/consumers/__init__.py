"""Consumers of the remoting protocol: heartbeats, pulls, offsets, returned messages and locks of queues.

Each module has the handlers of some request codes; `service` has the table of all. What only the leader may do are
calls of our own service at the leader. The members of groups are in this node's table (`cluster.remoting.clients`),
which each consumer fills by its heartbeats to every node.

Not here: what pop consumers ask (`cluster.remoting.pop`); they send the same heartbeats. `resets` lets members follow
an offset that an operator has set.
"""
