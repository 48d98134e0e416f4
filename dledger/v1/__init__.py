"""Generated from proto/dledger/v1 by scripts/generate_proto.py; not edited by hand."""
