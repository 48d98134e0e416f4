"""The gRPC services of `cluster.v1`: `BrokerService`, `AccessService` and `NameServer`.

A service checks requests and translates them to calls of the replica and of the broker rules; the rules themselves are
elsewhere. The calls between brokers and name servers are here, too. Another protocol gets a package of its own. Only
`cluster.server` and the command line import this package.
"""
