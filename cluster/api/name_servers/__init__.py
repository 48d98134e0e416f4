"""Brokers and name servers: the calls between them."""
