"""Access control of a broker: users, roles, the policies that grant rights, and decisions by them.

RocketMQ's ACL 2.0 with two departures: a deny that matches always wins, and roles bundle policies. Pure values and
functions: no network, no clock, no file, no bytes. `cluster.state` replicates them; fronts ask `rules.AccessRules`.

Not here: passwords and tokens, and which right an RPC needs.
"""
