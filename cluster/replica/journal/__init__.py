"""The journal of the broker state of a standalone broker: its changes since the last snapshot, in order.

`format` has the bytes, `reading` reads all segments without changing them, `segments` changes files, and `journal`
decides on the event loop what is written and when a caller's change is durable.
"""
