"""The front for clients of RocketMQ's classic remoting protocol (4.x and 5.x), in the roles of name server and broker.

The front translates, and the rules stay in one place: a request becomes calls of our own service at the leader of the
group (`cluster.fronts.leader_link`), so any node answers (ADR 91). `codec` has the frames, `connection` a connection
of a client, `front` the table of request codes; `responses` maps failures to codes of RocketMQ.
"""
