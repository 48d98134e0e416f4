"""Transport security: TLS or plain connections of clients, servers and peers, and the identity of the other end.

`settings` has the choice itself, without gRPC; `channels` opens every gRPC channel of this project and `server_port`
adds every gRPC listener, so that one place decides how a connection is secured. Programs that only configure nodes
import `settings` alone.

Not here: the making of certificates (`cluster.certificates`), users and access rules (`cluster.access`). Every package
that opens connections imports it.
"""
