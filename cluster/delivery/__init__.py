"""Delivery at another time than the put: delayed messages wait in queues of their own until they are copied.

`put_options` recognises what a client asks for, `diversion` redirects such a put, `due` decides what is due, `copies`
makes the message that consumers get, `delay_levels` is the task of the leader. No wire format; `cluster.api` and
`cluster.server` import it.
"""
