"""The consumer: group membership, rebalancing, prefetching, offsets.

Applications import `Consumer` from `cluster`. It uses `cluster.client.routing`, and imports neither the producer nor
server code.
"""
