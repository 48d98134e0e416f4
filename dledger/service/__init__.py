"""gRPC services in front of one node, and what every gRPC server of this project uses.

`log` and `admin` implement `dledger.v1`; `grpc_server`, `request_guard` and `field_bounds` serve the brokers, too.
Requests are checked and translated here, nothing is decided. Only programs that serve import it.
"""
