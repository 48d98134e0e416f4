"""Brokers and name servers: the calls between them, and the access control of a name server."""
