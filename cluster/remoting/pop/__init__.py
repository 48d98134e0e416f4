"""Pop consumers of the remoting protocol: they own no queues, and acknowledge each message by a handle.

A request is a call of our own pop consumption at the leader (`cluster.api.waiting.pop_calls`), whose handles already
have RocketMQ's form, so whatever node a client asks next understands them. `receives` gives messages, `acks` ends them
or changes their invisible time, `assignments` says which groups consume so, and `part` has the table of the codes.

Pure: `answers` (the fields that describe the messages of an answer), `records` (the records with their handles),
`acked` (which handles a request means), `request_modes` (where the mode of a group is kept), and `shares` (the queues
of one member). Clients of 4.9 pull, and know none of these codes.
"""
