"""Converts shared objects to messages of `cluster.v1` and back.

Services (`cluster.api`), clients and the registration with name servers import it. `cluster.broker` and
`cluster.replica` do not, because they are independent of the wire format.
"""
