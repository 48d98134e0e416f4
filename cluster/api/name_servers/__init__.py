"""The calls between brokers and name servers: registration, its differences, and the metrics of both ends.

Which registrations are accepted is decided in `cluster.nameserver`. `cluster.server` and `cluster.api` import it.
"""
