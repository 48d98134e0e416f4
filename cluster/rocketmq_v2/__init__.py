"""Generated from proto/cluster/rocketmq_v2 by scripts/generate_proto.py; not edited by hand."""
