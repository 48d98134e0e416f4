"""The rules of a name server, and how brokers register with it.

Which brokers there are and which registration is believed. The gRPC service is `cluster.api.name_server`. Services
and servers import it.
"""
