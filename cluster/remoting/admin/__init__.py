"""The requests of administrators: of mqadmin, the dashboard and the exporter of RocketMQ.

Each module has the handlers of one subject: `topics`, `groups`, `online` clients, `messages`, `statistics`, `runtime`;
and `refusals` has what does not apply to this broker.
What the leader must say is asked of it by `cluster.fronts.leader_link`; the rest is in the state of this node.
`answers` has the bodies of answers, whose keys are RocketMQ's, and `configs` reads the bodies of requests.
"""
