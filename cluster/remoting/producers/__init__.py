"""The requests of producers: sends, batches, transactions, replies and recalls, of clients of the remoting protocol.

Each becomes calls of our own service at the leader (`cluster.fronts.leader_link`), so a producer may ask any node, and
a change of the leader costs it some time, but no error: a send is repeated with its UNIQ_KEY, which the broker
recognises. Bodies are stored as they come, compressed or not.

`headers` reads the two forms of a send's header, `batches` the body of a batch, `stored_properties` adds what a broker
of RocketMQ adds; `sends` puts, `retried` has the rule of consumers' failed messages; `transactions` ends half messages
and asks producers about them (`restored`), `replies` pushes replies to requesters; `part` has the table of codes.
"""
