"""Bounds of what a client may take from a server: fields of requests, connections, memory, and shares under overload.

Each module is one bound, as a value or a counter, without a gRPC service; `dledger.service` and the services of brokers
and name servers apply them. Rights and rates of users (quotas) are not here (`cluster.access`). Only servers import it.
"""
