"""`dledger user` and `dledger acl`: users of brokers, and their rights.

The rules themselves are in `cluster.access`.
"""
