"""What a console sees of one node: its state, and the events of elections and replication, in order and bounded.

`events` has the vocabulary, `recorder` keeps the last events, `stalls` finds peers whose pushes stall, `state` reads
the state of the node. Not here: the stream to a client (`dledger.service.watch`).
"""
