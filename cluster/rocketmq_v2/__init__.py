"""The wire format of official clients of RocketMQ 5: the package `apache.rocketmq.v2` of protobuf.

Generated from proto/cluster/rocketmq_v2 by scripts/generate_proto.py; not edited by hand. `cluster.grpc_v2` answers.
"""
