"""gRPC services of one node, and the parts shared by all gRPC servers of this project.

`log` and `admin` implement `dledger.v1`; `grpc_server`, `guarded_method` and `limits` serve the brokers, too.
Requests are checked and translated here, without decisions. Only server programs import it.
"""
