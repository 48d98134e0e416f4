"""Generated from proto/cluster/v1 by scripts/generate_proto.py; not edited by hand."""
