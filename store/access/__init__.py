"""The API of the message store: put, get, query.

`message_store` is the only entry point; the other modules implement its reads, its queries and the detection of
repeated puts. Background work is in `store.maintenance`; protocols are in `cluster`. Brokers and tools import it.
"""
