"""The producer: batches, queue choice by load, compression, retries, outcomes of sends.

Applications import `Producer` from `cluster`. It uses `cluster.client.routing`, and imports neither the consumer nor
server code.
"""
