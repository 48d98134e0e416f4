"""Our own gRPC services: `cluster.v1.BrokerService` and `cluster.v1.NameServer`.

Requests are checked, translated to calls of replica and broker rules, and answered; no rule belongs here. The calls
that brokers and name servers make to each other are here, too. Another protocol gets a package beside this one. Only
`cluster.server` and the command line import it.
"""
