"""The protocol-independent rules of a broker: topics and groups, group members, queue locks, watched queues, metrics.

The package is free of any wire format: every protocol front (`cluster.api`, and others in future) uses the same rules.
It imports no gRPC, no protobuf and no sockets. The protocol fronts import it; it imports `cluster.protocol` and lower
layers.
"""
