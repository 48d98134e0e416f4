"""The message store as its users see it: put, get, query.

`message_store` is the one entry point; the other modules are its reads, its queries and its recognition of repeated
puts. Background work is in `store.maintenance`, and no protocol is known here. Brokers and tools import it.
"""
