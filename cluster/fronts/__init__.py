"""What the fronts for RocketMQ's clients share: the way to the leader of the group, and access keys.

A front translates the calls of a protocol of RocketMQ (`cluster.grpc_v2`, `cluster.remoting`) to calls of our own
service at the leader; `leader_link` makes these calls, in the name of the client that `callers` has authenticated.
"""
