"""The language of SQL92 filters: expressions over the properties of a message, with RocketMQ's grammar and values.

`tokens` and `parser` turn a text into the nodes of `syntax`; `compiler` turns these into closures; `predicate` looks
the properties up in the bytes of a record and remembers results. Pure functions of bytes and texts.

Not here: queues, records and requests.
"""
