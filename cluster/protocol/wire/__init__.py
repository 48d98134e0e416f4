"""Converts the objects that brokers, name servers and clients exchange to messages of `cluster.v1` and back.

Services (`cluster.api`), clients and the registration with name servers import it. Rules do not: `cluster.broker` and
`cluster.replica` know no wire format.
"""
