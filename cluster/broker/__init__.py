"""The rules of a broker that no protocol owns: topics and groups, group members, queue locks, watched queues, metrics.

Free of any wire format: every protocol front (ours in `cluster.api`, others beside it) uses the same rules. No gRPC,
no protobuf, no socket. The protocol fronts import it; it imports `cluster.protocol` and what is below.
"""
