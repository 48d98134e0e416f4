"""The front for official clients of RocketMQ 5: the service `apache.rocketmq.v2.MessagingService` of a broker's node.

The front translates, and the rules stay in one place: each call becomes calls of our own service at the leader of the
group (`cluster.fronts.leader_link`), so any node answers, and rights, quotas and audit are those of that service. The
front has no rights of its own: it calls in the name of the user whose access key has signed (`callers`, ADR 92).

`service` has the methods; `routes`, `sends`, `receives`, `orphan_checks` and `telemetry` do their work; `renewing`
renews the messages of push consumers, and `memberships` keeps consumers in their groups; `outgoing` and `delivered`
translate messages; `status_codes` has the codes, and `bounds` what a request may contain.
"""
