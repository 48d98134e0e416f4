"""The API of the message store: put, get, query.

`message_store` is the only entry point; the other modules are its reads, its queries and its recognition of repeated
puts. Background work is in `store.maintenance`; protocols are in `cluster`. Brokers and tools import it.
"""
