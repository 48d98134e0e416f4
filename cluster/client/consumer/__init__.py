"""The consumer: group membership, rebalancing, reading ahead, offsets.

Applications import `Consumer` from `cluster`. It uses `cluster.client.routing` and knows neither the producer nor a
server.
"""
